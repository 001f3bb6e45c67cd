#include "engine/checkpoint_files.h"

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
    for (const zero::Slot& slot : unit.layout.slots()) known.insert(stored_name(slot.name));
  }
  for (const checkpoint::StoredState& state : reader.states()) {
    if (known.contains(state.tensor)) continue;
    throw Error("{}: holds {}, which is no parameter of this model", reader.path().string(),
                state.tensor);
  }
}

// Gives the same values to several.
class Sinks : public StateSink {
 public:
  explicit Sinks(std::vector<StateSink*> sinks) : sinks_(std::move(sinks)) {}
  void begin(const std::vector<StatePiece>& pieces) override {
    for (StateSink* sink : sinks_) sink->begin(pieces);
  }
  void write(size_t index, int64_t first, const torch::Tensor& values) override {
    for (StateSink* sink : sinks_) sink->write(index, first, values);
  }

 private:
  std::vector<StateSink*> sinks_;
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
    if (is_of_model(piece)) parameters.push_back({piece.parameter, piece.shape});
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

checkpoint::Contribution CheckpointFiles::write(const checkpoint::Save& save,
                                                const HeldValues& held,
                                                const CheckpointRequest& request,
                                                const model::ModelLayout* layout) const {
  checkpoint::Contribution mine;
  StateFile states(save, stored_name());
  std::optional<ModelRanges> model;
  std::vector<StateSink*> sinks;
  if (request.states) sinks.push_back(&states);
  if (layout != nullptr) sinks.push_back(&model.emplace(save, *layout));
  Sinks all(std::move(sinks));
  save_states(held, all);
  if (request.states) mine.files.push_back(states.finish());
  if (model) mine.parts = model->finish();
  return mine;
}

SavedCheckpoint CheckpointFiles::save(const std::filesystem::path& folder,
                                      const EngineValues& values, const RunCounters& counters,
                                      const CheckpointRequest& request) {
  const bool first = ranks_.rank() == 0;
  const auto layout = model_layout(values.held);
  const int64_t model_bytes = layout && first ? layout->bytes() : 0;
  checkpoint::Saver& to = saver(folder);
  to.keep(request.keep, request.keep_steps);
  checkpoint::Save save =
      to.begin(counters.steps, model_bytes + (request.states ? bytes_to_save(values.held) : 0));
  std::vector<checkpoint::FilePart> headers;
  checkpoint::together(ranks_, "making " + save.folder(), [&] {
    if (layout && first) headers = make_model_files(save, *layout);
  });
  bring_up_to_date(values.held);
  checkpoint::Contribution mine;
  checkpoint::together(ranks_, "writing " + save.folder(), [&] {
    mine = write(save, values.held, request, layout ? &*layout : nullptr);
    if (first && request.write_files) request.write_files(save.path());
  });
  mine.parts.insert(mine.parts.end(), headers.begin(), headers.end());
  std::vector<checkpoint::WholeState> expected;
  if (request.states) expected = expected_states(values.held, stored_name());
  const std::filesystem::path parent = save.path().parent_path();
  const checkpoint::Committed done =
      save.commit(mine, facts_of(values, ranks_.size(), counters, request), expected);
  return {.path = parent / done.name, .warnings = done.warnings};
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
  const auto take = [&](checkpoint::Reader& reader) {
    require_same(reader, values, options.parts, stored_name());
    if (options.accept) options.accept(reader);
    StateReader source(reader, stored_name());
    load_states(values.held, source, options.parts != LoadedParts::kAll);
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
  loaded.told.warnings = done->passed_by;
  parent_ = {done->step, done->crc};
  savers_.clear();  // those of before do not know the parent
  return loaded;
}

}  // namespace zeroth::engine
