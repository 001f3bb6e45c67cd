#include "engine/model_ranges.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/crc32c.h"
#include "checkpoint/write_behind.h"
#include "model/hf/safetensors_writer.h"

namespace zeroth::engine {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Those that stand behind each other as one.
std::vector<checkpoint::FilePart> joined(std::vector<checkpoint::FilePart> parts) {
  using checkpoint::FilePart;
  std::sort(parts.begin(), parts.end(), [](const FilePart& a, const FilePart& b) {
    return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
  });
  std::vector<FilePart> joined;
  for (const FilePart& part : parts) {
    FilePart* const last = joined.empty() ? nullptr : &joined.back();
    if (last == nullptr || last->file != part.file || last->offset + last->size != part.offset) {
      joined.push_back(part);
      continue;
    }
    last->crc = crc32c_of_both(last->crc, part.crc, static_cast<uint64_t>(part.size));
    last->size += part.size;
  }
  return joined;
}

}  // namespace

bool is_of_model(const StatePiece& piece) {
  return piece.state == "master" || piece.state == "weight";
}

std::vector<checkpoint::FilePart> make_model_files(const checkpoint::Save& save,
                                                   const model::ModelLayout& layout) {
  checkpoint::Disk& disk = save.disk();
  std::vector<checkpoint::FilePart> parts;
  for (const model::ModelLayout::File& planned : layout.files) {
    const std::string& header = planned.layout.header;
    const auto file =
        disk.create(checkpoint::joined(save.folder(), planned.name), planned.layout.size);
    checkpoint::write_all(*file, bytes_of(header), 0);
    file->sync();
    file->close();
    parts.push_back({planned.name, 0, std::ssize(header), crc32c(bytes_of(header))});
  }
  if (layout.index.empty()) return parts;
  checkpoint::write_text(disk, checkpoint::joined(save.folder(), model::kIndexFile), layout.index);
  parts.push_back({model::kIndexFile, 0, std::ssize(layout.index), crc32c(bytes_of(layout.index))});
  return parts;
}

ModelRanges::ModelRanges(const checkpoint::Save& save, const model::ModelLayout& layout)
    : save_(save),
      layout_(layout),
      target_(save.path().parent_path() / checkpoint::step_name(save.step())),
      files_(layout.files.size()),
      row_files_(layout.files.size()) {}

void ModelRanges::begin(const std::vector<StatePiece>& pieces) {
  for (const StatePiece& piece : pieces) {
    std::optional<Region>& region = regions_.emplace_back();
    if (!is_of_model(piece)) continue;
    const model::ModelLayout::Place& place = layout_.places.at(piece.parameter);
    region = {piece.parameter, place.file, place.offset, piece.box, piece.begin};
  }
}

checkpoint::NewFile& ModelRanges::file_for(size_t index, bool scattered) {
  auto& file = (scattered ? row_files_ : files_)[index];
  if (file) return *file;
  const auto& planned = layout_.files[index];
  file = save_.disk().join(checkpoint::joined(save_.folder(), planned.name));
  if (!scattered) file = checkpoint::write_behind(std::move(file), planned.layout.size);
  return *file;
}

void ModelRanges::write(size_t index, int64_t first, const torch::Tensor& values) {
  const std::optional<Region>& region = regions_.at(index);
  if (!region || values.numel() == 0) return;
  model::require_finite(target_, region->parameter, values);
  const torch::Tensor saved = model::in_saved_dtype(region->parameter, values, layout_.dtype);
  std::span bytes(static_cast<const std::byte*>(saved.data_ptr()), saved.nbytes());
  const auto width = static_cast<int64_t>(saved.element_size());
  const std::vector<BoxRows> all =
      rows_of_box(region->box, region->first + first, saved.numel(), saved.numel());
  checkpoint::NewFile& file = file_for(region->file, all.size() > 1 || all.front().count > 1);
  for (const BoxRows& rows : all) {
    rows.for_each_run(0, rows.elements(), [&](int64_t, int64_t whole, int64_t size) {
      const auto run = bytes.first(static_cast<size_t>(size * width));
      const int64_t offset = region->offset + whole * width;
      const uint32_t crc = checkpoint::write_and_sum_all(file, run, offset);
      parts_.push_back({layout_.files[region->file].name, offset, std::ssize(run), crc});
      bytes = bytes.subspan(run.size());
    });
  }
}

std::vector<checkpoint::FilePart> ModelRanges::finish() {
  for (const auto* files : {&files_, &row_files_}) {
    for (const auto& file : *files) {
      if (!file) continue;
      file->sync();
      file->close();
    }
  }
  return joined(std::move(parts_));
}

}  // namespace zeroth::engine
