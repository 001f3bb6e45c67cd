#include "engine/state/state_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "checkpoint/buffered_file.h"
#include "model/hf/multimodal.h"
#include "model/hf/safetensors_writer.h"

namespace zeroth::engine {
namespace {

constexpr char kDataStep[] = "data.step";
constexpr char kDataSample[] = "data.sample";

constexpr std::string_view kCodes = "U8";  // no model has such a tensor

torch::Dtype dtype_of(const checkpoint::StoredState& stored) {
  if (stored.dtype == kCodes) return torch::kByte;
  if (const auto dtype = model::parse_dtype(stored.dtype)) return *dtype;
  throw Error("{} of {} is stored as {}, which is not supported", stored.state, stored.tensor,
              stored.dtype);
}

std::span<std::byte> bytes_of(const torch::Tensor& values) {
  return {static_cast<std::byte*>(values.data_ptr()), static_cast<size_t>(values.nbytes())};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Returns one counter of a checkpoint.
template <typename T>
T counter(const checkpoint::Counters& counters, const std::string& name) {
  const auto found = counters.find(name);
  if (found == counters.end())
    throw checkpoint::CorruptCheckpoint(fmt::format("the counter {} is missing", name));
  const T* const value = std::get_if<T>(&found->second);
  if (value == nullptr) {
    throw checkpoint::CorruptCheckpoint(fmt::format("the counter {} has the wrong type", name));
  }
  return *value;
}

// Merges adjacent segments of a file.
std::vector<checkpoint::FileSegment> merge_adjacent(std::vector<checkpoint::FileSegment> parts) {
  using checkpoint::FileSegment;
  std::ranges::sort(parts, {},
                    [](const FileSegment& part) { return std::tie(part.file, part.offset); });
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

// Calls visit(name, field) for each counter of a run, under its name in a manifest. A bool becomes
// an integer there.
template <typename Counters, typename Visit>
void visit_counters(Counters& counters, const Visit& visit) {
  visit("steps", counters.steps);
  visit("applied_updates", counters.applied_updates);
  visit("usual_divisor", counters.nominal_divisor);
  visit("loss_scale.scale", counters.loss_scale.scale);
  visit("loss_scale.hysteresis_left", counters.loss_scale.hysteresis_left);
  visit("loss_scale.step", counters.loss_scale.step);
  visit("loss_scale.last_overflow", counters.loss_scale.last_overflow);
  visit("not_finite.in_a_row", counters.skips.in_a_row);
  visit("not_finite.first_step", counters.skips.first_step);
  visit("not_finite.gradient", counters.skips.gradient);
  visit("not_finite.in_one", counters.skips.in_one);
  visit("not_finite.output", counters.skips.output);
}

template <typename PlateauState, typename Visit>
void visit_plateau(PlateauState& plateau, const Visit& visit) {
  visit("plateau.rate", plateau.rate);
  visit("plateau.best", plateau.best);
  visit("plateau.bad", plateau.num_bad);
  visit("plateau.cooldown", plateau.cooldown);
}

}  // namespace

checkpoint::TensorChunk stored_piece(const StateSlice& piece, const StoredName& stored_name) {
  return {
      .tensor = stored_name(piece.parameter),
      .state = piece.state,
      .dtype = std::string(piece.dtype == torch::kByte ? kCodes : model::dtype_name(piece.dtype)),
      .slice = piece.box,
      .range = {piece.begin, piece.end}};
}

void StateFile::begin(const std::vector<StateSlice>& pieces) {
  std::vector<checkpoint::TensorChunk> stored;
  stored.reserve(pieces.size());
  for (const StateSlice& piece : pieces) stored.push_back(stored_piece(piece, stored_name_));
  file_.emplace(save_.chunk_file(std::move(stored)));
}

void StateFile::write(size_t index, int64_t first, const torch::Tensor& values) {
  file_->write_at(index, first * values.element_size(), bytes_of(values.contiguous()));
}

checkpoint::StoredFile StateFile::finish() {
  return file_->finish(save_.chunk_file_name());
}

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
  for (const model::ModelLayout::CopiedFile& copied : layout.copied_files) {
    const auto file = file_system.create(checkpoint::join_path(save.directory(), copied.name),
                                         copied.layout.size);
    int64_t offset = 0;
    const auto append = [&](std::span<const std::byte> bytes) {
      const uint32_t crc = checkpoint::write_all_with_crc(*file, bytes, offset);
      parts.push_back({copied.name, offset, std::ssize(bytes), crc});
      offset += std::ssize(bytes);
    };
    append(bytes_of(copied.layout.header));
    model::copy_tensors(layout.copied_from, copied.tensors, append);
    file->sync();
    file->close();
  }
  parts = merge_adjacent(std::move(parts));
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
    region = {piece.parameter, &layout_.locations.at(piece.parameter), piece.box, piece.begin};
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

torch::Dtype ModelFileWriter::saved_dtype(const ParameterRegion& region) const {
  return model::saved_dtype(region.locations->front().tensor, layout_.dtype);
}

void ModelFileWriter::write(size_t index, int64_t first, const torch::Tensor& values) {
  const std::optional<ParameterRegion>& region = regions_.at(index);
  if (!region || values.numel() == 0) return;
  model::require_finite(target_, region->parameter, values);
  const torch::Dtype dtype = saved_dtype(*region);
  const torch::Tensor saved = model::to_saved_dtype(region->parameter, values, dtype);
  std::span bytes(static_cast<const std::byte*>(saved.data_ptr()), saved.nbytes());
  const std::vector<SliceRows> all =
      slice_rows(region->box, region->first + first, saved.numel(), saved.numel());
  const bool scattered = all.size() > 1 || all.front().count > 1;
  for (const SliceRows& rows : all) {
    rows.for_each_run(0, rows.elements(), [&](int64_t, int64_t whole, int64_t size) {
      const auto run = bytes.first(static_cast<size_t>(size * saved.element_size()));
      write_run(*region, whole, run, scattered);
      bytes = bytes.subspan(run.size());
    });
  }
}

void ModelFileWriter::write_run(const ParameterRegion& region, int64_t element,
                                std::span<const std::byte> bytes, bool scattered) {
  const auto width = static_cast<int64_t>(c10::elementSize(saved_dtype(region)));
  const int64_t tensor_elements = region.box.tensor_elements() / std::ssize(*region.locations);
  while (!bytes.empty()) {
    const auto& location = region.locations->at(static_cast<size_t>(element / tensor_elements));
    const int64_t at = element % tensor_elements, offset = location.offset + at * width;
    const int64_t size = std::min(std::ssize(bytes), (tensor_elements - at) * width);
    checkpoint::WritableFile& file = file_for(location.file, scattered);
    const uint32_t crc =
        checkpoint::write_all_with_crc(file, bytes.first(static_cast<size_t>(size)), offset);
    parts_.push_back({layout_.files[location.file].name, offset, size, crc});
    bytes = bytes.subspan(static_cast<size_t>(size));
    element += size / width;
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

void StateReader::read(const StateSlice& piece, torch::Tensor values) {
  const std::string name = stored_name_(piece.parameter);
  const checkpoint::StoredState* const stored = reader_.find(name, piece.state);
  if (stored == nullptr) {
    throw Error("{}: {} of {} is not stored", reader_.path().string(), piece.state, name);
  }
  if (stored->shape != piece.box.shape) {
    throw Error("{}: {} of {} has the shape [{}], the model's is [{}]", reader_.path().string(),
                piece.state, name, fmt::join(stored->shape, ", "),
                fmt::join(piece.box.shape, ", "));
  }
  const torch::Dtype dtype = dtype_of(*stored);
  if ((dtype == torch::kByte) != (values.scalar_type() == torch::kByte)) {
    throw Error("{}: {} of {} is stored as {}, which this run does not use (min_8bit_size)",
                reader_.path().string(), piece.state, name, stored->dtype);
  }
  const torch::Tensor read = dtype == values.scalar_type() && values.is_contiguous()
                                 ? values
                                 : at::empty(values.sizes(), dtype);
  reader_.read(name, piece.state, piece.box, {piece.begin, piece.end}, bytes_of(read));
  if (!read.is_same(values)) values.copy_(read);
}

bool StateReader::stores(const StateSlice& piece) {
  const auto* const stored = reader_.find(stored_name_(piece.parameter), piece.state);
  return stored != nullptr && stored->shape == piece.box.shape;
}

void put_position(const DataLoader& data, checkpoint::Counters& counters) {
  const auto position = data.position();
  if (!position) throw Error("the loader has no position that could be saved");
  counters[kDataStep] = position->step;
  counters[kDataSample] = position->sample;
}

DataLoader::Position position_of(const checkpoint::Counters& counters) {
  if (!counters.contains(kDataStep)) throw Error("the checkpoint has no position of a loader");
  return {.step = counter<int64_t>(counters, kDataStep),
          .sample = counter<int64_t>(counters, kDataSample)};
}

checkpoint::Counters to_counters(const RunCounters& counters) {
  checkpoint::Counters stored;
  const auto put = [&](const char* name, const auto& value) { stored[name] = value; };
  visit_counters(counters, put);
  if (counters.plateau) visit_plateau(*counters.plateau, put);
  return stored;
}

RunCounters from_counters(const checkpoint::Counters& counters) {
  RunCounters read;
  const auto get = [&]<typename T>(const char* name, T& value) {
    using Stored = std::conditional_t<std::is_same_v<T, bool>, int64_t, T>;
    value = static_cast<T>(counter<Stored>(counters, name));
  };
  visit_counters(read, get);
  if (counters.contains("plateau.rate")) visit_plateau(read.plateau.emplace(), get);
  return read;
}

}  // namespace zeroth::engine
