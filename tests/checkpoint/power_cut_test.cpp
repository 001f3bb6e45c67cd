// The machine ends at every call of a save of two ranks; what was not synced is lost, or not, as it
// happens. Of the disk that a fresh machine finds the newest checkpoint loads, at most the save
// that was under way is lost, and nothing of it survives the next one.
#include <doctest/doctest.h>

#include "checkpoint/commit.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/small_run.h"
#include "tests/checkpoint/thread_rank_group.h"

namespace zeroth::checkpoint::power_cut_test {
namespace {

using Names = std::vector<std::string>;

constexpr uint32_t kSeeds = 8;  // ways in which a disk forgets

struct Scene {
  std::vector<int64_t> before;  // steps that are saved before, with salts 1, 2, ...
  int64_t step;                 // that is saved while the machine ends, with the next salt
  bool has_exchange;
};

SaverOptions options() {
  return {.run_id = "run", .description = "test"};
}

Names save_all(const std::shared_ptr<FaultyFileSystem>& file_system,
               const std::vector<int64_t>& steps, int64_t first_salt) {
  ThreadRankGroup group(2);
  return group.run([&](RankGroup& ranks) {
    Saver saver(file_system, ranks, options());
    for (size_t i = 0; i < steps.size(); ++i) {
      save(saver, ranks, steps[i], first_salt + static_cast<int64_t>(i));
    }
  });
}

std::shared_ptr<FaultyFileSystem> prepared(const Scene& scene) {
  auto file_system = std::make_shared<FaultyFileSystem>();
  file_system->set_has_exchange(scene.has_exchange);
  save_all(file_system, scene.before, 1);
  file_system->set_fault({});
  return file_system;
}

// Returns what was wrong; empty: nothing.
std::string outcome(const Scene& scene, const std::shared_ptr<FaultyFileSystem>& after,
                    bool returned) {
  const auto salt = static_cast<int64_t>(scene.before.size()) + 1;
  const int64_t min_step = returned ? salt : salt - 1;
  const int64_t loaded = load_newest(after);
  if (loaded != salt && loaded != min_step &&
      !(scene.before.empty() && !returned && loaded == -1)) {
    return fmt::format("loads {}, saved were 1 to {}", loaded, salt);
  }
  for (const CheckpointInfo& found : list_checkpoints(*after)) {
    if (!found.complete()) return "under a final name: " + found.fault;
  }
  const Names results = save_all(after, {scene.step + 1}, salt + 1);
  if (results != Names{"", ""}) return "the next save: " + results[0];
  if (load_newest(after) != salt + 1) return fmt::format("then loads {}", load_newest(after));
  const Names temporary = temporary_names(*after);
  if (!temporary.empty()) return temporary.front() + " survives";
  return "";
}

}  // namespace

TEST_CASE("the machine may end at any call of a save of two ranks") {
  int64_t ends = 0;
  for (const Scene& scene : {Scene{{4, 8}, 12, true}, Scene{{}, 4, true}, Scene{{4, 8}, 8, true},
                             Scene{{4, 8}, 8, false}, Scene{{2, 4, 8}, 12, false}}) {
    const auto counted = prepared(scene);
    const auto salt = static_cast<int64_t>(scene.before.size()) + 1;
    REQUIRE(save_all(counted, {scene.step}, salt) == Names{"", ""});
    const int64_t calls = counted->calls();
    CHECK(calls > 30);
    // One more than there are: the end comes right after the save.
    for (int64_t call = 1; call <= calls + 1; ++call) {
      const auto file_system = prepared(scene);
      file_system->set_fault(FaultyFileSystem::Fault{call, FaultyFileSystem::Fault::Kind::kEnd, 0});
      const Names results = save_all(file_system, {scene.step}, salt);
      const bool returned = results[0].empty() && results[1].empty();
      CHECK(returned == (call > calls));
      for (uint32_t seed = 0; seed < kSeeds; ++seed) {
        const std::string wrong = outcome(scene, file_system->after_end(seed), returned);
        INFO("call ", call, " of ", calls, ", seed ", seed, ": ",
             call <= calls ? counted->log()[static_cast<size_t>(call - 1)] : "the end");
        CHECK(wrong == "");
      }
      ++ends;
    }
  }
  MESSAGE(ends, " ends of the machine, ", kSeeds, " disks after each");
}

TEST_CASE("a rank may end at any call of its own while the other goes on") {
  // Unlike a machine, a process that ends takes nothing back that it has written.
  const Scene scene{{4, 8}, 12, true};
  const auto salt = static_cast<int64_t>(scene.before.size()) + 1;
  for (const int victim : {0, 1}) {
    for (int64_t call = 1;; ++call) {
      const auto file_system = prepared(scene);
      ThreadRankGroup group(2);
      bool reached = false;
      const Names results = group.run([&](RankGroup& ranks) {
        Saver saver(file_system, ranks, options());
        Save one = saver.begin(scene.step, 1000);
        RankManifest mine;
        one.run_phase("writing", [&] {
          const auto chunks = pieces_of(small_model(), ranks.rank(), ranks.size());
          int64_t done = 0;
          const auto passes = [&] {
            if (ranks.rank() == victim && ++done == call) {
              reached = true;
              throw MachineEnd{};
            }
          };
          passes();
          ChunkFile file = one.chunk_file(chunks);
          for (size_t i = 0; i < chunks.size(); ++i) {
            passes();
            const std::vector<float> values = values_of(chunks[i], salt);
            file.write(i, std::as_bytes(std::span(values)));
          }
          passes();
          mine.files.push_back(file.finish(one.chunk_file_name()));
          passes();
        });
        one.commit(mine, {.counters = {{"salt", salt}}}, small_model());
      });
      if (!reached) {
        CHECK(results == Names{"", ""});
        CHECK(call == 8);
        break;
      }
      CHECK(results[static_cast<size_t>(victim)] == "lost");
      CHECK(results[static_cast<size_t>(1 - victim)] == fmt::format("rank {} is lost", victim));
      CHECK(load_newest(file_system) == salt - 1);
      CHECK(outcome(scene, file_system, false) == "");
    }
  }
}

}  // namespace zeroth::checkpoint::power_cut_test
