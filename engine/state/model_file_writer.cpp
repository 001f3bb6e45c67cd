#include "engine/state/model_file_writer.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/files/crc32c.h"
#include "checkpoint/write_behind.h"
#include "model/hf/safetensors_writer.h"

namespace zeroth::engine {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Merges adjacent segments of a file.
std::vector<checkpoint::FileSegment> merge_adjacent(std::vector<checkpoint::FileSegment> parts) {
  using checkpoint::FileSegment;
  std::sort(parts.begin(), parts.end(), [](const FileSegment& a, const FileSegment& b) {
    return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
  });
  std::vector<FileSegment> merged;
  for (const FileSegment& part : parts) {
    FileSegment* const last = merged.empty() ? nullptr : &merged.back();
    if (last == nullptr || last->file != part.file || last->offset + last->size != part.offset) {
      merged.push_back(part);
      continue;
    }
    last->crc = crc32c_combine(last->crc, part.crc, static_cast<uint64_t>(part.size));
    last->size += part.size;
  }
  return merged;
}

}  // namespace

bool belongs_to_model(const StateSlice& piece) {
  return piece.state == "master" || piece.state == "weight";
}

std::vector<checkpoint::FileSegment> make_model_files(const checkpoint::Save& save,
                                                      const model::ModelLayout& layout) {
  checkpoint::FileSystem& file_system = save.file_system();
  std::vector<checkpoint::FileSegment> parts;
  for (const model::ModelLayout::ShardFile& planned : layout.files) {
    const std::string& header = planned.layout.header;
    const auto file = file_system.create(checkpoint::join_path(save.directory(), planned.name),
                                         planned.layout.size);
    checkpoint::write_all(*file, bytes_of(header), 0);
    file->sync();
    file->close();
    parts.push_back({planned.name, 0, std::ssize(header), crc32c(bytes_of(header))});
  }
  if (layout.index.empty()) return parts;
  checkpoint::write_text(file_system, checkpoint::join_path(save.directory(), model::kIndexFile),
                         layout.index);
  parts.push_back({model::kIndexFile, 0, std::ssize(layout.index), crc32c(bytes_of(layout.index))});
  return parts;
}

ModelFileWriter::ModelFileWriter(const checkpoint::Save& save, const model::ModelLayout& layout)
    : save_(save),
      layout_(layout),
      target_(save.path().parent_path() / checkpoint::step_name(save.step())),
      files_(layout.files.size()),
      row_files_(layout.files.size()) {}

void ModelFileWriter::begin(const std::vector<StateSlice>& pieces) {
  for (const StateSlice& piece : pieces) {
    std::optional<ParameterRegion>& region = regions_.emplace_back();
    if (!belongs_to_model(piece)) continue;
    const model::ModelLayout::TensorLocation& place = layout_.locations.at(piece.parameter);
    region = {piece.parameter, place.file, place.offset, piece.box, piece.begin};
  }
}

checkpoint::WritableFile& ModelFileWriter::file_for(size_t index, bool scattered) {
  auto& file = (scattered ? row_files_ : files_)[index];
  if (file) return *file;
  const auto& planned = layout_.files[index];
  file = save_.file_system().open_shared(checkpoint::join_path(save_.directory(), planned.name));
  if (!scattered) file = checkpoint::write_behind(std::move(file), planned.layout.size);
  return *file;
}

void ModelFileWriter::write(size_t index, int64_t first, const torch::Tensor& values) {
  const std::optional<ParameterRegion>& region = regions_.at(index);
  if (!region || values.numel() == 0) return;
  model::require_finite(target_, region->parameter, values);
  const torch::Tensor saved = model::to_saved_dtype(region->parameter, values, layout_.dtype);
  std::span bytes(static_cast<const std::byte*>(saved.data_ptr()), saved.nbytes());
  const auto width = static_cast<int64_t>(saved.element_size());
  const std::vector<SliceRows> all =
      slice_rows(region->box, region->first + first, saved.numel(), saved.numel());
  checkpoint::WritableFile& file = file_for(region->file, all.size() > 1 || all.front().count > 1);
  for (const SliceRows& rows : all) {
    rows.for_each_run(0, rows.elements(), [&](int64_t, int64_t whole, int64_t size) {
      const auto run = bytes.first(static_cast<size_t>(size * width));
      const int64_t offset = region->offset + whole * width;
      const uint32_t crc = checkpoint::write_all_with_crc(file, run, offset);
      parts_.push_back({layout_.files[region->file].name, offset, std::ssize(run), crc});
      bytes = bytes.subspan(run.size());
    });
  }
}

std::vector<checkpoint::FileSegment> ModelFileWriter::finish() {
  for (const auto* files : {&files_, &row_files_}) {
    for (const auto& file : *files) {
      if (!file) continue;
      file->sync();
      file->close();
    }
  }
  return merge_adjacent(std::move(parts_));
}

}  // namespace zeroth::engine
