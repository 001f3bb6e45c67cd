#include "engine/state/checkpoint_files.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json/json.h"
#include "checkpoint/find.h"
#include "checkpoint/load.h"
#include "checkpoint/posix_file_system.h"
#include "checkpoint/reader.h"
#include "configs/resolve.h"
#include "engine/state/model_file_writer.h"
#include "model/hf/checkpoint_map.h"
#include "zero/param_store.h"
#include "zero/unit.h"

namespace zeroth::engine {
namespace {

constexpr char kClientState[] = "client.";  // prefix of the names of these counters

// Returns the name in files if these use the blocks' own names.
std::string identity_name(const std::string& parameter) {
  return parameter;
}

std::string random_id() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}", source(), source());
}

checkpoint::StringMap must_equal(const configs::Config& config) {
  const nlohmann::ordered_json json = parse_trusted_json(configs::to_json(config));
  return {{"optimizer.type", json.at("optimizer").at("type").get<std::string>()}};
}

checkpoint::Manifest make_manifest(const EngineValues& values, int ranks,
                                   const RunCounters& counters, const CheckpointRequest& request) {
  checkpoint::Manifest facts;
  facts.must_equal = must_equal(values.config);
  facts.must_equal.insert(request.must_equal.begin(), request.must_equal.end());
  facts.may_change = request.may_change;
  facts.layout = {{"ranks", std::to_string(ranks)}, {"strategy", values.strategy}};
  facts.counters = to_counters(counters);
  if (request.data != nullptr) put_position(*request.data, facts.counters);
  for (const auto& [name, value] : request.client_state) {
    facts.counters[kClientState + name] = value;
  }
  return facts;
}

ClientState client_state_of(const checkpoint::Counters& counters) {
  const std::string_view mark = kClientState;
  ClientState found;
  for (const auto& [name, value] : counters) {
    if (name.starts_with(mark)) found[name.substr(mark.size())] = value;
  }
  return found;
}

std::vector<checkpoint::ExpectedState> expected_states(const ShardedState& held,
                                                       const StoredName& stored_name) {
  std::vector<checkpoint::ExpectedState> expected;
  for (const StateSlice& piece : global_states(held)) {
    const checkpoint::TensorChunk stored = stored_piece(piece, stored_name);
    expected.push_back({stored.tensor, stored.state, stored.dtype, stored.shape});
  }
  return expected;
}

// Throws an Error if the checkpoint belongs to another model or optimizer than the engine's.
void verify_compatible(const checkpoint::CheckpointReader& reader, const EngineValues& values,
                       LoadedParts parts, const StoredName& stored_name) {
  const auto& stored = reader.manifest().must_equal;
  for (const auto& [key, value] : must_equal(values.config)) {
    const auto found = stored.find(key);
    if (parts != LoadedParts::kAll || (found != stored.end() && found->second == value)) continue;
    throw Error("{}: {} is {} in the checkpoint, {} in this run", reader.path().string(), key,
                found == stored.end() ? "not set" : found->second, value);
  }
  std::set<std::string> known;
  for (const zero::Unit& unit : values.held.plan.units) {
    for (const zero::Slot& slot : unit.layout.slots()) known.insert(stored_name(slot.global.name));
  }
  for (const checkpoint::StoredState& state : reader.states()) {
    if (known.contains(state.tensor)) continue;
    throw Error("{}: holds {}, which is not a parameter of this model", reader.path().string(),
                state.tensor);
  }
}

class SaveTimer {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// RankFiles is the files that a rank writes for a save.
class RankFiles : public StateSink {
 public:
  // Keeps references to `save` and `layout`. Writes no model without a layout, and no states if
  // `stored_name` is null.
  RankFiles(const checkpoint::Save& save, const std::optional<model::ModelLayout>& layout,
            const StoredName* stored_name) {
    if (stored_name != nullptr) states_.emplace(save, *stored_name);
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

StoredName CheckpointFiles::stored_name() const {
  if (!model_) return identity_name;
  return
      [this](const std::string& parameter) { return model::stored_name(model_->spec, parameter); };
}

std::optional<model::ModelLayout> CheckpointFiles::model_layout(const ShardedState& held) const {
  if (!model_) return std::nullopt;
  std::vector<model::PlannedTensor> parameters;
  for (const StateSlice& piece : global_states(held)) {
    if (belongs_to_model(piece)) parameters.push_back({piece.parameter, piece.box.shape});
  }
  return model::plan_model(model_->spec, model_->dtype.value_or(held.params.dtype()), parameters);
}

checkpoint::Saver& CheckpointFiles::saver(const std::filesystem::path& directory) {
  std::unique_ptr<checkpoint::Saver>& saver = savers_[std::filesystem::absolute(directory)];
  if (saver) return *saver;
  std::shared_ptr<checkpoint::FileSystem> file_system;
  checkpoint::run_on_all_ranks(ranks_, "making the folder",
                               [&] { file_system = checkpoint::PosixFileSystem::make(directory); });
  if (run_id_.empty()) run_id_ = ranks_.gather(random_id()).front();
  saver = std::make_unique<checkpoint::Saver>(
      std::move(file_system), ranks_,
      checkpoint::SaverOptions{.run_id = run_id_, .keep = 0, .parent = parent_});
  return *saver;
}

// A PreparedSave is a save that is neither committed nor abandoned.
struct CheckpointFiles::PreparedSave {
  checkpoint::Save save;
  std::optional<model::ModelLayout> layout;
  std::vector<checkpoint::FileSegment> headers;  // written by rank 0
  checkpoint::Manifest facts;
  std::vector<checkpoint::ExpectedState> expected;
  std::optional<StoredName> stored_name;                          // set if states are saved
  std::function<void(const std::filesystem::path&)> write_files;  // on rank 0

  RankFiles files() const { return RankFiles(save, layout, stored_name ? &*stored_name : nullptr); }
};

struct CheckpointFiles::AsyncSave {
  AsyncSave(PreparedSave prepared_save, const ShardedState& values, SnapshotMemory& memory)
      : prepared(std::move(prepared_save)),
        held(values),
        files(prepared.files()),
        snapshot(
            held, files, [this] { mine = files.finish(); }, memory) {
    held.optimizer.set_observer(&snapshot);
  }
  ~AsyncSave() { held.optimizer.set_observer(nullptr); }

  PreparedSave prepared;
  ShardedState held;
  RankFiles files;
  checkpoint::RankManifest mine;  // set once the snapshot has ended
  double begin_s = 0;             // duration of start()
  Snapshot snapshot;
};

CheckpointFiles::CheckpointFiles(comm::DeviceMesh& mesh) : ranks_(mesh) {}
CheckpointFiles::~CheckpointFiles() = default;

CheckpointFiles::PreparedSave CheckpointFiles::begin(const std::filesystem::path& directory,
                                                     const EngineValues& values,
                                                     const RunCounters& counters,
                                                     const CheckpointRequest& request) {
  const bool first = ranks_.rank() == 0;
  checkpoint::Manifest facts = make_manifest(values, ranks_.size(), counters, request);
  auto layout = model_layout(values.held);
  const int64_t model_bytes = layout && first ? layout->bytes() : 0;
  checkpoint::Saver& to = saver(directory);
  to.keep(request.keep, request.keep_steps);
  PreparedSave prepared{
      .save =
          to.begin(counters.steps, model_bytes + (request.states ? bytes_to_save(values.held) : 0)),
      .layout = std::move(layout),
      .headers = {},
      .facts = std::move(facts),
      .expected = {},
      .stored_name = {},
      .write_files = {}};
  checkpoint::run_on_all_ranks(ranks_, "making " + prepared.save.directory(), [&] {
    if (prepared.layout && first)
      prepared.headers = make_model_files(prepared.save, *prepared.layout);
  });
  if (first) prepared.write_files = request.write_files;
  if (request.states) {
    prepared.stored_name = stored_name();
    prepared.expected = expected_states(values.held, *prepared.stored_name);
  }
  apply_pending_updates(values.held);
  return prepared;
}

SavedCheckpoint CheckpointFiles::commit(PreparedSave& prepared, checkpoint::RankManifest mine) {
  mine.parts.insert(mine.parts.end(), prepared.headers.begin(), prepared.headers.end());
  const std::filesystem::path parent = prepared.save.path().parent_path();
  const checkpoint::CommitResult done =
      prepared.save.commit(mine, std::move(prepared.facts), prepared.expected);
  return {.path = parent / done.name, .warnings = done.warnings};
}

SavedCheckpoint CheckpointFiles::save(const std::filesystem::path& directory,
                                      const EngineValues& values, const RunCounters& counters,
                                      const CheckpointRequest& request) {
  const SaveTimer timer;
  PreparedSave prepared = begin(directory, values, counters, request);
  checkpoint::RankManifest mine;
  checkpoint::run_on_all_ranks(ranks_, "writing " + prepared.save.directory(), [&] {
    RankFiles files = prepared.files();
    save_states(values.held, files);
    mine = files.finish();
    if (prepared.write_files) prepared.write_files(prepared.save.path());
  });
  SavedCheckpoint saved = commit(prepared, std::move(mine));
  saved.blocked_s = saved.writing_s = timer.seconds();
  return saved;
}

void CheckpointFiles::start(const std::filesystem::path& directory, const EngineValues& values,
                            const RunCounters& counters, const CheckpointRequest& request) {
  const SaveTimer timer;
  PreparedSave prepared = begin(directory, values, counters, request);
  const int64_t memory_limit = request.memory.value_or(snapshot_memory(bytes_to_save(values.held)));
  checkpoint::run_on_all_ranks(ranks_, "writing " + prepared.save.directory(), [&] {
    if (prepared.write_files) prepared.write_files(prepared.save.path());
    if (!memory_ || memory_->max_bytes() != memory_limit) {
      memory_ = std::make_unique<SnapshotMemory>(values.held.params.device(), memory_limit);
    }
  });
  written_ = false;
  async_save_ = std::make_unique<AsyncSave>(std::move(prepared), values.held, *memory_);
  async_save_->begin_s = timer.seconds();
}

bool CheckpointFiles::writes() {
  return is_saving() && !async_save_->snapshot.ended();
}

void CheckpointFiles::set_ranks_writing(int64_t ranks_that_write) {
  written_ = is_saving() && ranks_that_write == 0;
}

void CheckpointFiles::after_update() {
  if (is_saving()) async_save_->snapshot.copy_remaining();
}

SavedCheckpoint CheckpointFiles::finish() {
  ZEROTH_CHECK(is_saving(), "finish_checkpoint: no checkpoint is in progress");
  const SaveTimer timer;
  const std::unique_ptr<AsyncSave> save = std::move(async_save_);
  const double waited = save->snapshot.waited_seconds();  // before this call
  // `written_` is the same on all ranks, so that all call this or none does.
  if (!written_) apply_pending_updates(save->held);
  const auto failure = save->snapshot.wait();
  checkpoint::run_on_all_ranks(ranks_, "writing " + save->prepared.save.directory(), [&] {
    if (failure) throw Error("{}", *failure);
  });
  const SaveTimer commit_timer;
  SavedCheckpoint saved = commit(save->prepared, std::move(save->mine));
  saved.blocked_s = save->begin_s + waited + timer.seconds();
  saved.writing_s = save->begin_s + save->snapshot.writing_seconds() + commit_timer.seconds();
  return saved;
}

std::vector<std::string> CheckpointFiles::keep(const std::filesystem::path& directory,
                                               int64_t newest, const std::set<int64_t>& steps) {
  const auto found = savers_.find(std::filesystem::absolute(directory));
  if (found == savers_.end() || ranks_.rank() != 0) return {};
  found->second->keep(newest, steps);
  const auto failure = checkpoint::capture_failure([&] { found->second->remove_old(); });
  return failure ? std::vector<std::string>{*failure} : std::vector<std::string>{};
}

checkpoint::CheckpointLocation CheckpointFiles::locate(const std::filesystem::path& path) {
  checkpoint::CheckpointLocation place;
  const auto failure = checkpoint::capture_failure([&] { place = checkpoint::locate(path); });
  const std::string mine =
      place.file_system == nullptr ? "nothing" : place.checkpoint.value_or("checkpoints");
  const auto found = checkpoint::commit_vote(ranks_, "looking for " + path.string(), failure, mine);
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (found[rank] == found.front()) continue;
    throw Error("{}: rank 0 finds {} there, rank {} {}", path.string(), found.front(), rank,
                found[rank]);
  }
  return place;
}

std::optional<CheckpointFiles::LoadResult> CheckpointFiles::load(const std::filesystem::path& path,
                                                                 const EngineValues& values,
                                                                 const LoadOptions& options) {
  LoadResult loaded;
  Loader::Position position;
  const auto take = [&](checkpoint::CheckpointReader& reader) {
    verify_compatible(reader, values, options.parts, stored_name());
    if (options.accept) options.accept(reader);
    if (options.data != nullptr) position = position_of(reader.manifest().counters);
    StateReader source(reader, stored_name());
    load_states(values.held, source, options.parts != LoadedParts::kAll, options.on_read);
    const checkpoint::Manifest& manifest = reader.manifest();
    loaded.counters = from_counters(manifest.counters);
    loaded.checkpoint = {.path = reader.path(), .client_state = client_state_of(manifest.counters)};
    run_id_ = manifest.run_id;
  };
  const checkpoint::CheckpointLocation place = locate(path);
  if (place.file_system == nullptr) return std::nullopt;
  // The ranks apply updates together, before reading, so that a rank that throws blocks no other.
  apply_pending_updates(values.held);
  std::optional<checkpoint::LoadedCheckpoint> done;
  if (place.checkpoint) {
    done = checkpoint::load_named(place.file_system, *place.checkpoint, ranks_, take);
  } else {
    done = checkpoint::load_newest(place.file_system, ranks_, take);
  }
  if (!done) return std::nullopt;
  if (options.data != nullptr) options.data->seek(position);
  loaded.checkpoint.warnings = done->skipped;
  parent_ = {done->step, done->crc};
  savers_.clear();  // earlier ones do not know the parent
  return loaded;
}

}  // namespace zeroth::engine
