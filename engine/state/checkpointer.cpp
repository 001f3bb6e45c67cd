#include "engine/state/checkpointer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json/json.h"
#include "base/machine/random_bytes.h"
#include "base/machine/timer.h"
#include "checkpoint/find.h"
#include "checkpoint/posix_file_system.h"
#include "comm/cpu_collectives.h"
#include "configs/resolve.h"
#include "model/hf/adapter_files.h"
#include "model/hf/checkpoint_map.h"
#include "zero/param_store.h"
#include "zero/parameter_index.h"
#include "zero/sharded_optimizer.h"
#include "zero/unit.h"

namespace zeroth::engine {
namespace {

constexpr char kClientState[] = "client.";  // prefix of the names of these counters

checkpoint::StringMap must_equal(const configs::Config& config) {
  const nlohmann::ordered_json json = parse_trusted_json(configs::to_json(config));
  return {{"optimizer.type", json.at("optimizer").at("type").get<std::string>()}};
}

checkpoint::Manifest make_manifest(const CheckpointedRun& run, int ranks,
                                   const RunCounters& counters, const CheckpointRequest& request) {
  checkpoint::Manifest manifest;
  manifest.must_equal = must_equal(run.config);
  manifest.must_equal.insert(request.must_equal.begin(), request.must_equal.end());
  manifest.may_change = request.may_change;
  manifest.layout = {{"ranks", std::to_string(ranks)}, {"strategy", run.strategy}};
  manifest.counters = to_counters(counters);
  if (request.data != nullptr) put_position(*request.data, manifest.counters);
  for (const auto& [name, value] : request.client_state) {
    manifest.counters[kClientState + name] = value;
  }
  return manifest;
}

// Returns the layout of the model that the ranks save together; nullopt if no model is to be saved.
std::optional<model::ModelLayout> model_layout(const CheckpointedRun& run) {
  if (!run.model) return std::nullopt;
  const auto& [spec, dtype, adapter] = *run.model;
  std::vector<model::PlannedTensor> parameters;
  for (const zero::GlobalParameter& parameter : zero::global_parameters(run.held.plan)) {
    if (parameter.is_saved && parameter.numel() > 0)
      parameters.push_back({parameter.name, parameter.shape, parameter.keep_in_fp32});
  }
  if (adapter) return model::plan_adapter(spec, *adapter, parameters);
  return model::plan_model(spec, dtype.value_or(run.held.params.dtype()), parameters);
}

// Throws an Error if the checkpoint belongs to another model or optimizer than the run's.
void verify_compatible(const checkpoint::CheckpointReader& reader, const CheckpointedRun& run,
                       LoadedParts parts, const StoredName& stored_name) {
  const auto& stored = reader.manifest().must_equal;
  for (const auto& [key, value] : must_equal(run.config)) {
    const auto found = stored.find(key);
    if (parts != LoadedParts::kAll || (found != stored.end() && found->second == value)) continue;
    throw Error("{}: {} is {} in the checkpoint, {} in this run", reader.path().string(), key,
                found == stored.end() ? "not set" : found->second, value);
  }
  std::set<std::string> known;
  for (const zero::Unit& unit : run.held.plan.units) {
    if (!unit.is_saved) continue;
    for (const zero::Slot& slot : unit.layout.slots()) known.insert(stored_name(slot.global.name));
  }
  for (const checkpoint::StoredState& state : reader.states()) {
    if (known.contains(state.tensor)) continue;
    throw Error("{}: holds {}, which is not a parameter of this model", reader.path().string(),
                state.tensor);
  }
}

ClientState client_state_of(const checkpoint::Counters& counters) {
  const std::string_view mark = kClientState;
  ClientState found;
  for (const auto& [name, value] : counters) {
    if (name.starts_with(mark)) found[name.substr(mark.size())] = value;
  }
  return found;
}

std::vector<checkpoint::StoredState> expected_states(const ShardedState& held,
                                                     const StoredName& stored_name) {
  std::vector<checkpoint::StoredState> expected;
  for (const StateSlice& piece : global_states(held)) {
    const checkpoint::TensorChunk stored = stored_piece(piece, stored_name);
    expected.push_back({stored.tensor, stored.state, stored.dtype, stored.slice.shape});
  }
  return expected;
}

// Finds the checkpoint. The result is the same on all ranks.
checkpoint::CheckpointLocation locate(MeshRanks& ranks, const std::filesystem::path& path) {
  checkpoint::CheckpointLocation place;
  const auto failure = checkpoint::capture_failure([&] { place = checkpoint::locate(path); });
  const std::string mine =
      place.file_system == nullptr ? "nothing" : place.checkpoint.value_or("checkpoints");
  const auto found = checkpoint::commit_vote(ranks, "looking for " + path.string(), failure, mine);
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (found[rank] == found.front()) continue;
    throw Error("{}: rank 0 finds {} there, rank {} {}", path.string(), found.front(), rank,
                found[rank]);
  }
  return place;
}

// RankFiles is the files that a rank writes for a save.
class RankFiles : public StateSink {
 public:
  // Keeps references to `save` and `layout`. Writes no model without a layout, and no states
  // without `stored_name`.
  RankFiles(const checkpoint::Save& save, const std::optional<model::ModelLayout>& layout,
            const std::optional<StoredName>& stored_name) {
    if (stored_name) states_.emplace(save, *stored_name);
    if (layout) model_.emplace(save, *layout);
  }
  void begin(const std::vector<StateSlice>& pieces) override {
    if (states_) states_->begin(pieces);
    if (model_) model_->begin(pieces);
  }
  void write(size_t index, int64_t first, const torch::Tensor& values) override {
    if (states_) states_->write(index, first, values);
    if (model_) model_->write(index, first, values);
  }
  checkpoint::RankManifest finish() {
    checkpoint::RankManifest mine;
    if (states_) mine.files.push_back(states_->finish());
    if (model_) mine.parts = model_->finish();
    return mine;
  }

 private:
  std::optional<StateFile> states_;
  std::optional<ModelFileWriter> model_;
};

}  // namespace

std::vector<std::string> MeshRanks::gather(const std::string& mine) {
  return comm::all_gather_strings(mine, "what ranks tell", mesh_.cpu_group());
}

// Names in files are the blocks' own unless a model is saved.
StoredName Checkpointer::stored_name() const {
  return [this](const std::string& parameter) {
    if (!run_.model) return parameter;
    const auto& [spec, dtype, adapter] = *run_.model;
    return adapter ? model::adapter_tensor_name(spec, *adapter, parameter)
                   : model::stored_name(spec, parameter);
  };
}

checkpoint::Saver& Checkpointer::saver(const std::filesystem::path& directory) {
  std::unique_ptr<checkpoint::Saver>& saver = savers_[std::filesystem::absolute(directory)];
  if (saver) return *saver;
  std::shared_ptr<checkpoint::FileSystem> file_system;
  checkpoint::run_on_all_ranks(ranks_, "making the folder",
                               [&] { file_system = checkpoint::PosixFileSystem::make(directory); });
  if (run_id_.empty()) run_id_ = ranks_.gather(random_hex(8)).front();
  saver = std::make_unique<checkpoint::Saver>(
      std::move(file_system), ranks_,
      checkpoint::SaverOptions{.run_id = run_id_, .keep = 0, .parent = parent_});
  return *saver;
}

// A PreparedSave is a save that is neither committed nor abandoned.
struct Checkpointer::PreparedSave {
  checkpoint::Save save;
  std::optional<model::ModelLayout> layout;
  std::vector<checkpoint::FileSegment> headers = {};  // written by rank 0
  checkpoint::Manifest manifest;
  std::vector<checkpoint::StoredState> expected = {};
  std::optional<StoredName> stored_name = {};                          // set if states are saved
  std::function<void(const std::filesystem::path&)> write_files = {};  // on rank 0

  RankFiles files() const { return {save, layout, stored_name}; }
};

struct Checkpointer::AsyncSave {
  AsyncSave(PreparedSave prepared_save, const ShardedState& held, SnapshotMemory& memory)
      : prepared(std::move(prepared_save)),
        optimizer(held.optimizer),
        files(prepared.files()),
        snapshot(
            held, files, [this] { mine = files.finish(); }, memory) {
    optimizer.set_observer(&snapshot);
  }
  ~AsyncSave() { optimizer.set_observer(nullptr); }

  PreparedSave prepared;
  zero::ShardedOptimizer& optimizer;
  RankFiles files;
  checkpoint::RankManifest mine;  // set once the snapshot has ended
  double begin_s = 0;             // duration of start()
  Snapshot snapshot;
};

Checkpointer::Checkpointer(comm::DeviceMesh& mesh, CheckpointedRun run)
    : ranks_(mesh), run_(std::move(run)) {}
Checkpointer::~Checkpointer() = default;

Checkpointer::PreparedSave Checkpointer::begin(const std::filesystem::path& directory,
                                               const RunCounters& counters,
                                               const CheckpointRequest& request) {
  const bool first = ranks_.rank() == 0;
  checkpoint::Manifest manifest = make_manifest(run_, ranks_.size(), counters, request);
  auto layout = model_layout(run_);
  const int64_t model_bytes = layout && first ? layout->bytes() : 0;
  checkpoint::Saver& to = saver(directory);
  to.keep(request.keep, request.keep_steps);
  const int64_t bytes = model_bytes + (request.states ? bytes_to_save(run_.held) : 0);
  PreparedSave prepared{.save = to.begin(counters.steps, bytes),
                        .layout = std::move(layout),
                        .manifest = std::move(manifest)};
  checkpoint::run_on_all_ranks(ranks_, "making " + prepared.save.directory(), [&] {
    if (prepared.layout && first)
      prepared.headers = make_model_files(prepared.save, *prepared.layout);
  });
  if (first) prepared.write_files = request.write_files;
  if (request.states) {
    prepared.stored_name = stored_name();
    prepared.expected = expected_states(run_.held, *prepared.stored_name);
  }
  apply_pending_updates(run_.held);
  return prepared;
}

SavedCheckpoint Checkpointer::commit(PreparedSave& prepared, checkpoint::RankManifest mine) {
  mine.parts.insert(mine.parts.end(), prepared.headers.begin(), prepared.headers.end());
  const std::filesystem::path parent = prepared.save.path().parent_path();
  const checkpoint::CommitResult done =
      prepared.save.commit(mine, std::move(prepared.manifest), prepared.expected);
  return {.path = parent / done.name, .warnings = done.warnings};
}

SavedCheckpoint Checkpointer::save(const std::filesystem::path& directory,
                                   const RunCounters& counters, const CheckpointRequest& request) {
  finish_pending();
  const Timer timer;
  PreparedSave prepared = begin(directory, counters, request);
  checkpoint::RankManifest mine;
  checkpoint::run_on_all_ranks(ranks_, "writing " + prepared.save.directory(), [&] {
    RankFiles files = prepared.files();
    save_states(run_.held, files);
    mine = files.finish();
    if (prepared.write_files) prepared.write_files(prepared.save.path());
  });
  SavedCheckpoint saved = commit(prepared, std::move(mine));
  saved.blocked_s = saved.writing_s = timer.seconds();
  return saved;
}

std::optional<SavedCheckpoint> Checkpointer::start(const std::filesystem::path& directory,
                                                   const RunCounters& counters,
                                                   const CheckpointRequest& request) {
  auto finished = finish_pending();
  const Timer timer;
  PreparedSave prepared = begin(directory, counters, request);
  const int64_t memory_limit = request.memory.value_or(snapshot_memory(bytes_to_save(run_.held)));
  checkpoint::run_on_all_ranks(ranks_, "writing " + prepared.save.directory(), [&] {
    if (prepared.write_files) prepared.write_files(prepared.save.path());
    if (!memory_ || memory_->max_bytes() != memory_limit) {
      memory_ = std::make_unique<SnapshotMemory>(run_.held.params.device(), memory_limit);
    }
  });
  written_ = false;
  async_save_ = std::make_unique<AsyncSave>(std::move(prepared), run_.held, *memory_);
  async_save_->begin_s = timer.seconds();
  return finished;
}

std::optional<SavedCheckpoint> Checkpointer::finish_pending() {
  return is_saving() ? std::optional(finish()) : std::nullopt;
}

bool Checkpointer::writes() {
  return is_saving() && !async_save_->snapshot.ended();
}

bool Checkpointer::set_ranks_writing(int64_t ranks_that_write) {
  return written_ = is_saving() && ranks_that_write == 0;
}

void Checkpointer::after_update() {
  if (is_saving()) async_save_->snapshot.copy_remaining();
}

SavedCheckpoint Checkpointer::finish() {
  ZEROTH_CHECK(is_saving(), "finish_checkpoint: no checkpoint is in progress");
  const Timer timer;
  const std::unique_ptr<AsyncSave> save = std::move(async_save_);
  const double waited = save->snapshot.waited_seconds();  // before this call
  // `written_` is the same on all ranks, so that all call this or none does.
  if (!written_) apply_pending_updates(run_.held);
  const auto failure = save->snapshot.wait();
  checkpoint::run_on_all_ranks(ranks_, "writing " + save->prepared.save.directory(), [&] {
    if (failure) throw Error("{}", *failure);
  });
  const Timer commit_timer;
  SavedCheckpoint saved = commit(save->prepared, std::move(save->mine));
  saved.blocked_s = save->begin_s + waited + timer.seconds();
  saved.writing_s = save->begin_s + save->snapshot.writing_seconds() + commit_timer.seconds();
  return saved;
}

std::vector<std::string> Checkpointer::keep(const std::filesystem::path& directory, int64_t newest,
                                            const std::set<int64_t>& steps) {
  const auto found = savers_.find(std::filesystem::absolute(directory));
  if (found == savers_.end() || ranks_.rank() != 0) return {};
  found->second->keep(newest, steps);
  const auto failure = checkpoint::capture_failure([&] { found->second->rotate_checkpoints(); });
  return failure ? std::vector<std::string>{*failure} : std::vector<std::string>{};
}

std::optional<Checkpointer::LoadResult> Checkpointer::load(const std::filesystem::path& path,
                                                           const LoadOptions& options) {
  finish_pending();
  LoadResult loaded;
  DataLoader::Position position;
  bool requantized = false;
  const auto take = [&](checkpoint::CheckpointReader& reader) {
    verify_compatible(reader, run_, options.parts, stored_name());
    if (options.accept) options.accept(reader);
    if (options.data != nullptr) position = position_of(reader.manifest().counters);
    StateReader source(reader, stored_name());
    requantized =
        load_states(run_.held, source, options.parts != LoadedParts::kAll, options.on_read);
    const checkpoint::Manifest& manifest = reader.manifest();
    loaded.counters = from_counters(manifest.counters);
    loaded.checkpoint = {.path = reader.path(), .client_state = client_state_of(manifest.counters)};
    run_id_ = manifest.run_id;
  };
  const checkpoint::CheckpointLocation place = locate(ranks_, path);
  if (place.file_system == nullptr) return std::nullopt;
  // The ranks apply updates together, before reading, so that a rank that throws blocks no other.
  apply_pending_updates(run_.held);
  const std::optional<checkpoint::LoadedCheckpoint> done =
      place.checkpoint ? checkpoint::load_named(place.file_system, *place.checkpoint, ranks_, take)
                       : checkpoint::load_newest(place.file_system, ranks_, take);
  if (!done) return std::nullopt;
  if (options.data != nullptr) options.data->seek(position);
  loaded.checkpoint.warnings = done->skipped;
  if (requantized) {
    loaded.checkpoint.warnings.push_back(fmt::format(
        "{}: the 8-bit optimizer states are quantized anew, as its ranks held other slices of "
        "parameters: this run continues near that one, not bit for bit",
        loaded.checkpoint.path.string()));
  }
  parent_ = {done->step, done->crc};
  savers_.clear();  // earlier ones do not know the parent
  return loaded;
}

}  // namespace zeroth::engine
