#include "engine/checkpoint_files.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/find.h"
#include "checkpoint/load.h"
#include "checkpoint/reader.h"
#include "checkpoint/real_disk.h"
#include "configs/resolve.h"
#include "engine/model_ranges.h"
#include "model/hf/checkpoint_map.h"
#include "zero/param_store.h"
#include "zero/unit.h"

namespace zeroth::engine {
namespace {

constexpr char kClientState[] = "client.";  // before the names of these counters

// The blocks' own names stand in files.
std::string own_name(const std::string& parameter) {
  return parameter;
}

std::string random_id() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}", source(), source());
}

checkpoint::Texts must_equal(const configs::Config& config) {
  const nlohmann::ordered_json json = own_json(configs::to_json(config));
  return {{"optimizer.type", json.at("optimizer").at("type").get<std::string>()}};
}

checkpoint::Manifest facts_of(const EngineValues& values, int ranks, const RunCounters& counters,
                              const CheckpointRequest& request) {
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

std::vector<checkpoint::WholeState> expected_states(const HeldValues& held,
                                                    const StoredName& stored_name) {
  std::vector<checkpoint::WholeState> expected;
  for (const StatePiece& piece : whole_states(held)) {
    const checkpoint::Piece stored = stored_piece(piece, stored_name);
    expected.push_back({stored.tensor, stored.state, stored.dtype, stored.shape});
  }
  return expected;
}

// Where a checkpoint is of another model or optimizer than the engine's.
void require_same(const checkpoint::Reader& reader, const EngineValues& values, LoadedParts parts,
                  const StoredName& stored_name) {
  const auto& stored = reader.manifest().must_equal;
  for (const auto& [key, value] : must_equal(values.config)) {
    const auto found = stored.find(key);
    if (parts != LoadedParts::kAll || (found != stored.end() && found->second == value)) continue;
    throw Error("{}: {} is {} there, {} here", reader.path().string(), key,
                found == stored.end() ? "not set" : found->second, value);
  }
  std::set<std::string> known;
  for (const zero::Unit& unit : values.held.plan.units) {
    for (const zero::Slot& slot : unit.layout.slots()) known.insert(stored_name(slot.whole.name));
  }
  for (const checkpoint::StoredState& state : reader.states()) {
    if (known.contains(state.tensor)) continue;
    throw Error("{}: holds {}, which is no parameter of this model", reader.path().string(),
                state.tensor);
  }
}

class Clock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// What a rank writes of a save.
class RankFiles : public StateSink {
 public:
  // Keeps references to `save` and `layout`. Without one there is no model.
  RankFiles(const checkpoint::Save& save, const std::optional<model::ModelLayout>& layout,
            const StoredName* stored_name) {
    if (stored_name != nullptr) states_.emplace(save, *stored_name);
    if (layout) model_.emplace(save, *layout);
  }
  void begin(const std::vector<StatePiece>& pieces) override {
    if (states_) states_->begin(pieces);
    if (model_) model_->begin(pieces);
  }
  void write(size_t index, int64_t first, const torch::Tensor& values) override {
    if (states_) states_->write(index, first, values);
    if (model_) model_->write(index, first, values);
  }
  checkpoint::Contribution finish() {
    checkpoint::Contribution mine;
    if (states_) mine.files.push_back(states_->finish());
    if (model_) mine.parts = model_->finish();
    return mine;
  }

 private:
  std::optional<StateFile> states_;
  std::optional<ModelRanges> model_;
};

}  // namespace

StoredName CheckpointFiles::stored_name() const {
  if (!model_) return own_name;
  return
      [this](const std::string& parameter) { return model::stored_name(model_->spec, parameter); };
}

std::optional<model::ModelLayout> CheckpointFiles::model_layout(const HeldValues& held) const {
  if (!model_) return std::nullopt;
  std::vector<model::PlannedTensor> parameters;
  for (const StatePiece& piece : whole_states(held)) {
    if (is_of_model(piece)) parameters.push_back({piece.parameter, piece.box.shape});
  }
  return model::plan_model(model_->spec, model_->dtype.value_or(held.params.dtype()), parameters);
}

checkpoint::Saver& CheckpointFiles::saver(const std::filesystem::path& folder) {
  std::unique_ptr<checkpoint::Saver>& saver = savers_[std::filesystem::absolute(folder)];
  if (saver) return *saver;
  std::shared_ptr<checkpoint::Disk> disk;
  checkpoint::together(ranks_, "making the folder",
                       [&] { disk = checkpoint::RealDisk::make(folder); });
  if (run_id_.empty()) run_id_ = ranks_.gather(random_id()).front();
  saver = std::make_unique<checkpoint::Saver>(
      std::move(disk), ranks_,
      checkpoint::SaverOptions{.run_id = run_id_, .keep = 0, .parent = parent_});
  return *saver;
}

// A save that is neither committed nor given up.
struct CheckpointFiles::Begun {
  checkpoint::Save save;
  std::optional<model::ModelLayout> layout;
  std::vector<checkpoint::FilePart> headers;  // that rank 0 has written
  checkpoint::Manifest facts;
  std::vector<checkpoint::WholeState> expected;
  std::optional<StoredName> stored_name;                          // where states are saved
  std::function<void(const std::filesystem::path&)> write_files;  // on rank 0

  RankFiles files() const { return RankFiles(save, layout, stored_name ? &*stored_name : nullptr); }
};

struct CheckpointFiles::UnderWay {
  UnderWay(Begun given, const HeldValues& values, SnapshotMemory& memory)
      : begun(std::move(given)),
        held(values),
        files(begun.files()),
        snapshot(
            held, files, [this] { mine = files.finish(); }, memory) {
    held.optimizer.set_watch(&snapshot);
  }
  ~UnderWay() { held.optimizer.set_watch(nullptr); }

  Begun begun;
  HeldValues held;
  RankFiles files;
  checkpoint::Contribution mine;  // once the snapshot has ended
  double begin_s = 0;             // that it took to begin
  Snapshot snapshot;
};

CheckpointFiles::CheckpointFiles(comm::Mesh& mesh) : ranks_(mesh) {}
CheckpointFiles::~CheckpointFiles() = default;

CheckpointFiles::Begun CheckpointFiles::begin(const std::filesystem::path& folder,
                                              const EngineValues& values,
                                              const RunCounters& counters,
                                              const CheckpointRequest& request) {
  const bool first = ranks_.rank() == 0;
  checkpoint::Manifest facts = facts_of(values, ranks_.size(), counters, request);
  auto layout = model_layout(values.held);
  const int64_t model_bytes = layout && first ? layout->bytes() : 0;
  checkpoint::Saver& to = saver(folder);
  to.keep(request.keep, request.keep_steps);
  Begun begun{.save = to.begin(counters.steps,
                               model_bytes + (request.states ? bytes_to_save(values.held) : 0)),
              .layout = std::move(layout),
              .headers = {},
              .facts = std::move(facts),
              .expected = {},
              .stored_name = {},
              .write_files = {}};
  checkpoint::together(ranks_, "making " + begun.save.folder(), [&] {
    if (begun.layout && first) begun.headers = make_model_files(begun.save, *begun.layout);
  });
  if (first) begun.write_files = request.write_files;
  if (request.states) {
    begun.stored_name = stored_name();
    begun.expected = expected_states(values.held, *begun.stored_name);
  }
  bring_up_to_date(values.held);
  return begun;
}

SavedCheckpoint CheckpointFiles::commit(Begun& begun, checkpoint::Contribution mine) {
  mine.parts.insert(mine.parts.end(), begun.headers.begin(), begun.headers.end());
  const std::filesystem::path parent = begun.save.path().parent_path();
  const checkpoint::Committed done =
      begun.save.commit(mine, std::move(begun.facts), begun.expected);
  return {.path = parent / done.name, .warnings = done.warnings};
}

SavedCheckpoint CheckpointFiles::save(const std::filesystem::path& folder,
                                      const EngineValues& values, const RunCounters& counters,
                                      const CheckpointRequest& request) {
  const Clock clock;
  Begun begun = begin(folder, values, counters, request);
  checkpoint::Contribution mine;
  checkpoint::together(ranks_, "writing " + begun.save.folder(), [&] {
    RankFiles files = begun.files();
    save_states(values.held, files);
    mine = files.finish();
    if (begun.write_files) begun.write_files(begun.save.path());
  });
  SavedCheckpoint saved = commit(begun, std::move(mine));
  saved.held_up_s = saved.writing_s = clock.seconds();
  return saved;
}

void CheckpointFiles::start(const std::filesystem::path& folder, const EngineValues& values,
                            const RunCounters& counters, const CheckpointRequest& request) {
  const Clock clock;
  Begun begun = begin(folder, values, counters, request);
  const int64_t most = request.memory.value_or(snapshot_memory(bytes_to_save(values.held)));
  checkpoint::together(ranks_, "writing " + begun.save.folder(), [&] {
    if (begun.write_files) begun.write_files(begun.save.path());
    if (!memory_ || memory_->most_bytes() != most) {
      memory_ = std::make_unique<SnapshotMemory>(values.held.params.device(), most);
    }
  });
  written_ = false;
  under_way_ = std::make_unique<UnderWay>(std::move(begun), values.held, *memory_);
  under_way_->begin_s = clock.seconds();
}

bool CheckpointFiles::writes() {
  return under_way() && !under_way_->snapshot.ended();
}

void CheckpointFiles::told(int64_t ranks_that_write) {
  written_ = under_way() && ranks_that_write == 0;
}

void CheckpointFiles::after_update() {
  if (under_way()) under_way_->snapshot.hand_over();
}

SavedCheckpoint CheckpointFiles::finish() {
  ZEROTH_CHECK(under_way(), "finish_checkpoint: none is under way");
  const Clock clock;
  const std::unique_ptr<UnderWay> ends = std::move(under_way_);
  const double waited = ends->snapshot.waited_seconds();  // before this call
  // Ranks do this together, or none does.
  if (!written_) bring_up_to_date(ends->held);
  const auto failure = ends->snapshot.wait();
  checkpoint::together(ranks_, "writing " + ends->begun.save.folder(), [&] {
    if (failure) throw Error("{}", *failure);
  });
  const Clock commits;
  SavedCheckpoint saved = commit(ends->begun, std::move(ends->mine));
  saved.held_up_s = ends->begin_s + waited + clock.seconds();
  saved.writing_s = ends->begin_s + ends->snapshot.writing_seconds() + commits.seconds();
  return saved;
}

std::vector<std::string> CheckpointFiles::keep(const std::filesystem::path& folder, int64_t newest,
                                               const std::set<int64_t>& steps) {
  const auto found = savers_.find(std::filesystem::absolute(folder));
  if (found == savers_.end() || ranks_.rank() != 0) return {};
  found->second->keep(newest, steps);
  const auto failure = checkpoint::failure_of([&] { found->second->remove_old(); });
  return failure ? std::vector<std::string>{*failure} : std::vector<std::string>{};
}

checkpoint::Place CheckpointFiles::locate(const std::filesystem::path& path) {
  checkpoint::Place place;
  const auto failure = checkpoint::failure_of([&] { place = checkpoint::locate(path); });
  const std::string mine = place.disk == nullptr ? "nothing" : place.one.value_or("checkpoints");
  const auto found = checkpoint::vote(ranks_, "looking for " + path.string(), failure, mine);
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (found[rank] == found.front()) continue;
    throw Error("{}: rank 0 finds {} there, rank {} {}", path.string(), found.front(), rank,
                found[rank]);
  }
  return place;
}

std::optional<CheckpointFiles::Loaded> CheckpointFiles::load(const std::filesystem::path& path,
                                                             const EngineValues& values,
                                                             const LoadOptions& options) {
  Loaded loaded;
  Loader::Position position;
  const auto take = [&](checkpoint::Reader& reader) {
    require_same(reader, values, options.parts, stored_name());
    if (options.accept) options.accept(reader);
    if (options.data != nullptr) position = position_of(reader.manifest().counters);
    StateReader source(reader, stored_name());
    load_states(values.held, source, options.parts != LoadedParts::kAll, options.on_read);
    const checkpoint::Manifest& manifest = reader.manifest();
    loaded.counters = from_counters(manifest.counters);
    loaded.told = {.path = reader.path(), .client_state = client_state_of(manifest.counters)};
    run_id_ = manifest.run_id;
  };
  const checkpoint::Place place = locate(path);
  if (place.disk == nullptr) return std::nullopt;
  bring_up_to_date(values.held);  // what ranks do together: one that throws keeps nobody waiting
  std::optional<checkpoint::Loaded> done;
  if (place.one) {
    done = checkpoint::load_named(place.disk, *place.one, ranks_, take);
  } else {
    done = checkpoint::load_newest(place.disk, ranks_, take);
  }
  if (!done) return std::nullopt;
  if (options.data != nullptr) options.data->seek(position);
  loaded.told.warnings = done->passed_by;
  parent_ = {done->step, done->crc};
  savers_.clear();  // those of before do not know the parent
  return loaded;
}

}  // namespace zeroth::engine
