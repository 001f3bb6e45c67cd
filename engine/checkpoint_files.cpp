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
#include "engine/state_files.h"
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
                              const ClientState& client_state) {
  checkpoint::Manifest facts;
  facts.must_equal = must_equal(values.config);
  facts.layout = {{"ranks", std::to_string(ranks)}, {"strategy", values.strategy}};
  facts.counters = to_counters(counters);
  for (const auto& [name, text] : client_state) facts.counters[kClientState + name] = text;
  return facts;
}

ClientState client_state_of(const checkpoint::Counters& counters) {
  const std::string_view mark = kClientState;
  ClientState found;
  for (const auto& [name, value] : counters) {
    const auto* const text = std::get_if<std::string>(&value);
    if (name.starts_with(mark) && text != nullptr) found[name.substr(mark.size())] = *text;
  }
  return found;
}

std::vector<checkpoint::WholeState> expected_states(const HeldValues& held) {
  std::vector<checkpoint::WholeState> expected;
  for (const StatePiece& piece : whole_states(held)) {
    const checkpoint::Piece stored = stored_piece(piece, own_name);
    expected.push_back({stored.tensor, stored.state, stored.dtype, stored.shape});
  }
  return expected;
}

// Where a checkpoint is of another model or optimizer than the engine's.
void require_same(const checkpoint::Reader& reader, const EngineValues& values, LoadedParts parts) {
  if (parts == LoadedParts::kAll) {
    const auto& stored = reader.manifest().must_equal;
    for (const auto& difference : checkpoint::differences(stored, must_equal(values.config))) {
      throw Error("{}: {} is {} there, {} here", reader.path().string(), difference.key,
                  difference.stored.value_or("not set"), difference.now.value_or("not set"));
    }
  }
  std::set<std::string> known;
  for (const zero::Unit& unit : values.held.plan.units) {
    for (const zero::Slot& slot : unit.layout.slots()) known.insert(slot.name);
  }
  for (const checkpoint::StoredState& state : reader.states()) {
    if (known.contains(state.tensor)) continue;
    throw Error("{}: holds {}, which is no parameter of this model", reader.path().string(),
                state.tensor);
  }
}

}  // namespace

checkpoint::Saver& CheckpointFiles::saver(const std::filesystem::path& folder) {
  std::unique_ptr<checkpoint::Saver>& saver = savers_[std::filesystem::absolute(folder)];
  if (saver) return *saver;
  std::shared_ptr<checkpoint::Disk> disk;
  checkpoint::together(ranks_, "making the folder",
                       [&] { disk = checkpoint::RealDisk::make(folder); });
  saver = std::make_unique<checkpoint::Saver>(
      std::move(disk), ranks_,
      checkpoint::SaverOptions{
          .run_id = ranks_.gather(random_id()).front(), .keep = 0, .parent = parent_});
  return *saver;
}

SavedCheckpoint CheckpointFiles::save(const std::filesystem::path& folder,
                                      const EngineValues& values, const RunCounters& counters,
                                      const ClientState& client_state) {
  checkpoint::Saver& to = saver(folder);
  checkpoint::Save save = to.begin(counters.steps, bytes_to_save(values.held));
  bring_up_to_date(values.held);
  StateFile file(save, own_name);
  checkpoint::Contribution mine;
  checkpoint::together(ranks_, "writing " + save.folder(), [&] {
    save_states(values.held, file);
    mine.files.push_back(file.finish());
  });
  const std::filesystem::path parent = save.path().parent_path();
  const checkpoint::Committed done = save.commit(
      mine, facts_of(values, ranks_.size(), counters, client_state), expected_states(values.held));
  return {.path = parent / done.name, .warnings = done.warnings};
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
                                                             LoadedParts parts) {
  Loaded loaded;
  const auto take = [&](checkpoint::Reader& reader) {
    require_same(reader, values, parts);
    StateReader source(reader, own_name);
    load_states(values.held, source, parts != LoadedParts::kAll);
    const checkpoint::Counters& counters = reader.manifest().counters;
    loaded.counters = from_counters(counters);
    loaded.told = {.path = reader.path(), .client_state = client_state_of(counters)};
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
