#include "engine/state/state_files.h"

#include <ATen/ops/empty.h>

#include <fmt/ranges.h>

#include <span>
#include <utility>

#include "base/error.h"
#include "model/hf/dtype_name.h"

namespace zeroth::engine {
namespace {

using checkpoint::Counter;

torch::Dtype dtype_of(const checkpoint::StoredState& stored) {
  if (const auto dtype = model::parse_dtype(stored.dtype)) return *dtype;
  throw Error("{} of {} is stored as {}, which is not supported", stored.state, stored.tensor,
              stored.dtype);
}

checkpoint::ChunkBounds stored_box(const TensorSlice& box) {
  checkpoint::ChunkBounds stored{box.offsets, box.offsets};
  for (size_t i = 0; i < box.sizes.size(); ++i) stored.end[i] += box.sizes[i];
  return stored;
}

constexpr char kDataStep[] = "data.step";
constexpr char kDataSample[] = "data.sample";

std::span<std::byte> bytes_of(const torch::Tensor& values) {
  return {static_cast<std::byte*>(values.data_ptr()), static_cast<size_t>(values.nbytes())};
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

}  // namespace

checkpoint::TensorChunk stored_piece(const StateSlice& piece, const StoredName& stored_name) {
  return {.tensor = stored_name(piece.parameter),
          .state = piece.state,
          .dtype = std::string(model::dtype_name(piece.dtype)),
          .shape = piece.box.shape,
          .box = stored_box(piece.box),
          .range = {piece.begin, piece.end}};
}

StateFile::StateFile(const checkpoint::Save& save, StoredName stored_name)
    : save_(save), stored_name_(std::move(stored_name)) {}

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

StateReader::StateReader(checkpoint::CheckpointReader& reader, StoredName stored_name)
    : reader_(reader), stored_name_(std::move(stored_name)) {}

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
  const torch::Tensor read = dtype == values.scalar_type() && values.is_contiguous()
                                 ? values
                                 : at::empty(values.sizes(), dtype);
  reader_.read(name, piece.state, stored_box(piece.box), {piece.begin, piece.end}, bytes_of(read));
  if (!read.is_same(values)) values.copy_(read);
}

void put_position(const Loader& data, checkpoint::Counters& counters) {
  const auto position = data.position();
  if (!position) throw Error("the loader has no position that could be saved");
  counters[kDataStep] = position->step;
  counters[kDataSample] = position->sample;
}

Loader::Position position_of(const checkpoint::Counters& counters) {
  if (!counters.contains(kDataStep)) throw Error("the checkpoint has no position of a loader");
  return {.step = counter<int64_t>(counters, kDataStep),
          .sample = counter<int64_t>(counters, kDataSample)};
}

checkpoint::Counters to_counters(const RunCounters& counters) {
  checkpoint::Counters stored = {
      {"steps", counters.steps},
      {"applied_updates", counters.applied_updates},
      {"usual_divisor", counters.nominal_divisor},
      {"loss_scale.scale", counters.loss_scale.scale},
      {"loss_scale.hysteresis_left", counters.loss_scale.hysteresis_left},
      {"loss_scale.step", counters.loss_scale.step},
      {"loss_scale.last_overflow", counters.loss_scale.last_overflow},
      {"not_finite.in_a_row", counters.skips.in_a_row},
      {"not_finite.first_step", counters.skips.first_step},
      {"not_finite.gradient", counters.skips.gradient},
      {"not_finite.in_one", static_cast<int64_t>(counters.skips.in_one)},
      {"not_finite.output", counters.skips.output},
  };
  if (counters.plateau) {
    stored["plateau.rate"] = counters.plateau->rate;
    stored["plateau.best"] = counters.plateau->best;
    stored["plateau.bad"] = counters.plateau->num_bad;
    stored["plateau.cooldown"] = counters.plateau->cooldown;
  }
  return stored;
}

RunCounters from_counters(const checkpoint::Counters& counters) {
  const auto integer = [&](const char* name) { return counter<int64_t>(counters, name); };
  const auto real = [&](const char* name) { return counter<double>(counters, name); };
  const auto text = [&](const char* name) { return counter<std::string>(counters, name); };
  RunCounters read = {.steps = integer("steps"),
                      .applied_updates = integer("applied_updates"),
                      .nominal_divisor = integer("usual_divisor"),
                      .loss_scale = {.scale = real("loss_scale.scale"),
                                     .hysteresis_left = integer("loss_scale.hysteresis_left"),
                                     .step = integer("loss_scale.step"),
                                     .last_overflow = integer("loss_scale.last_overflow")},
                      .skips = {.in_a_row = integer("not_finite.in_a_row"),
                                .first_step = integer("not_finite.first_step"),
                                .gradient = text("not_finite.gradient"),
                                .in_one = integer("not_finite.in_one") != 0,
                                .output = text("not_finite.output")}};
  if (counters.contains("plateau.rate")) {
    read.plateau = {.rate = real("plateau.rate"),
                    .best = real("plateau.best"),
                    .num_bad = integer("plateau.bad"),
                    .cooldown = integer("plateau.cooldown")};
  }
  return read;
}

}  // namespace zeroth::engine
