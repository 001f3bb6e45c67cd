#include "launcher/commands/commands.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "base/files/output_lock.h"
#include "checkpoint/posix_file_system.h"
#include "tests/checkpoint/small_run.h"
#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::checkpoint_command_test {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// An output with checkpoints of steps 4, 8 and 12.
class Output {
 public:
  Output() {
    checkpoint::SingleRankGroup one;
    checkpoint::Saver saver(checkpoint::PosixFileSystem::make(checkpoints()), one,
                            {.run_id = "run-1", .keep = 0});
    for (const int64_t step : {4, 8, 12}) save(saver, one, step, step);
  }

  std::string path() const { return directory_ / "out"; }
  std::string checkpoints() const { return directory_ / "out/checkpoints"; }
  std::string pieces(int64_t step) const {
    return checkpoints() + "/step-" + std::to_string(step) + "/zeroth/pieces-00000.safetensors";
  }
  // Changes the last byte of what a step holds.
  void damage(int64_t step) const {
    std::string bytes = read_text(pieces(step));
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_text(pieces(step), bytes);
  }
  Words steps() const {
    Words names;
    for (const auto& entry : fs::directory_iterator(checkpoints())) {
      if (checkpoint::parse_step(entry.path().filename().string()))
        names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  TempFolder directory_;
};

std::string refused(const Words& words) {
  return message_of<UsageError>([&] { (void)checkpoint_command(words); });
}

}  // namespace

TEST_CASE("list tells step, size, age and state of each checkpoint") {
  const Output output;
  fs::create_directory(output.path() + "/step-2");
  write_text(output.path() + "/step-2/config.json", "{}");
  for (const std::string& path : {output.path(), output.checkpoints()}) {
    const auto answer = checkpoint_command({"list", path});
    CHECK(answer.status == 0);
    const auto lines = lines_of(answer.text);
    REQUIRE(lines.size() == 6);
    CHECK(lines[0] == fs::canonical(output.checkpoints()).string());
    CHECK(lines[1].starts_with("  step-4 "));
    CHECK(contains(lines[1], " KiB "));
    CHECK(lines[1].ends_with("s  complete"));
    CHECK(lines[3].ends_with("s  complete, the newest"));
    CHECK(lines[4] == "Weights only, cannot be resumed:");
    CHECK(lines[5] == "  step-2");
  }
  fs::remove(output.checkpoints() + "/step-12/zeroth/manifest.json");
  const auto answer = checkpoint_command({"list", output.path()});
  CHECK(answer.status == 1);
  CHECK(contains(answer.text, "step-12"));
  CHECK(contains(answer.text, "not complete: "));
  CHECK(contains(answer.text, "it has no zeroth/manifest.json"));
}

TEST_CASE("show tells what the newest one holds, or the one that is named") {
  const Output output;
  const auto newest = checkpoint_command({"show", output.path()});
  CHECK(newest.status == 0);
  for (const char* const part :
       {"/step-12\n", "step      ", "run-1", "resumed from  step 8, manifest ",
        "Counters:\n  salt  12\n", "Must be equal to resume:\n  model  small\n",
        "zeroth/pieces-00000.safetensors  ", ", 4 pieces\n",
        "2 tensors:\n  a  [6, 4]            exp_avg F32, master F32\n"}) {
    CHECK_MESSAGE(contains(newest.text, part), part);
  }
  const auto one = checkpoint_command({"show", output.checkpoints() + "/step-4"});
  CHECK(contains(one.text, "Counters:\n  salt  4\n"));
  CHECK_FALSE(contains(one.text, "resumed from"));
}

TEST_CASE("verify reads every byte, and names file, tensor and box of one that changed") {
  const Output output;
  const auto good = checkpoint_command({"verify", output.path()});
  CHECK(good.status == 0);
  CHECK(lines_of(good.text).size() == 3);
  CHECK(lines_of(good.text)[0].starts_with("step-4: good, "));
  output.damage(8);
  fs::resize_file(output.pieces(12), 100);
  const auto bad = checkpoint_command({"verify", output.path()});
  CHECK(bad.status == 1);
  CHECK(contains(bad.text, "step-8: 1 fault\n"));
  CHECK(contains(bad.text, "exp_avg of b [0:5](0:5): crc32c "));
  CHECK(contains(bad.text, "step-12: 1 fault\n  not complete: "));
  CHECK(checkpoint_command({"verify", output.checkpoints() + "/step-4"}).status == 0);
  CHECK(checkpoint_command({"verify", output.checkpoints() + "/step-8"}).status == 1);
  fs::rename(output.checkpoints() + "/step-4", output.path() + "/kept");
  CHECK(checkpoint_command({"verify", output.path() + "/kept"}).text.starts_with("kept: good, "));
}

TEST_CASE("prune keeps the newest, and takes what is not complete only where it is told to") {
  const Output output;
  CHECK(checkpoint_command({"prune", output.path(), "--dry-run"}).text == "would remove step-4\n");
  CHECK(output.steps() == Words{"step-12", "step-4", "step-8"});
  CHECK(checkpoint_command({"prune", output.path()}).text == "removed step-4\n");
  CHECK(checkpoint_command({"prune", output.path()}).text == "nothing to remove\n");
  fs::remove(output.checkpoints() + "/step-12/zeroth/manifest.json");
  CHECK(checkpoint_command({"prune", output.path(), "--keep", "1"}).text == "nothing to remove\n");
  CHECK(checkpoint_command({"prune", output.path(), "--keep", "1", "--damaged"}).text ==
        "removed step-12\n");
  CHECK(output.steps() == Words{"step-8"});
  fs::remove(output.checkpoints() + "/step-8/zeroth/manifest.json");
  CHECK(message_of<Error>([&] {
          (void)checkpoint_command({"prune", output.path(), "--damaged"});
        }).ends_with("holds no complete checkpoint: nothing is removed"));
  CHECK(output.steps() == Words{"step-8"});
}

TEST_CASE("prune reads what it keeps: no damaged one stays in the place of a good one") {
  const Output output;
  output.damage(12);
  const std::string said = message_of<Error>([&] {
    (void)checkpoint_command({"prune", output.path(), "--keep", "1"});
  });
  CHECK(contains(said, "/step-12 has 1 fault: "));
  CHECK(contains(said, "\nnothing is removed; --damaged removes it and keeps an older one"));
  CHECK(output.steps() == Words{"step-12", "step-4", "step-8"});
  CHECK(checkpoint_command({"prune", output.path(), "--keep", "1", "--damaged"}).text ==
        "removed step-4\nremoved step-12\n");
  CHECK(output.steps() == Words{"step-8"});
  output.damage(8);
  CHECK(message_of<Error>([&] {
          (void)checkpoint_command({"prune", output.path(), "--damaged"});
        }).ends_with("holds no good checkpoint: nothing is removed"));
  CHECK(output.steps() == Words{"step-8"});
}

TEST_CASE("prune removes nothing while a run holds the output, and says which run that is") {
  const Output output;
  const fs::path link = output.path() + "-link";
  fs::create_directory_symlink(output.path(), link);
  {
    const OutputLock run(output.path());
    const std::string holder = " is the output of a run that is still active (process " +
                               std::to_string(::getpid()) + " on ";
    for (const std::string& path : {output.path(), output.checkpoints(), link.string()}) {
      const std::string said = message_of<Error>([&] {
        (void)checkpoint_command({"prune", path, "--damaged"});
      });
      CHECK_MESSAGE(contains(said, holder), said);
    }
    CHECK(checkpoint_command({"prune", output.path(), "--dry-run"}).text ==
          "would remove step-4\n");
    CHECK(checkpoint_command({"list", output.path()}).status == 0);
  }
  CHECK(output.steps() == Words{"step-12", "step-4", "step-8"});
  CHECK(checkpoint_command({"prune", link.string()}).text == "removed step-4\n");
  CHECK_FALSE(fs::exists(output.path() + ".zeroth-lock"));
}

TEST_CASE("an output of models without states is told as such, and never pruned") {
  const TempFolder directory;
  for (const char* const name : {"step-4", "step-8", "checkpoint-12"}) {
    fs::create_directory(directory / name);
    directory.write(std::string(name) + "/config.json", "{}");
  }
  const auto answer = checkpoint_command({"list", directory.path()});
  CHECK(answer.status == 0);
  const auto lines = lines_of(answer.text);
  REQUIRE(lines.size() == 5);
  CHECK(lines[1].starts_with("  step-4 "));
  CHECK(lines[1].ends_with("s  weights only, cannot be resumed"));
  CHECK(lines[4] == "  checkpoint-12");
  CHECK(message_of<Error>([&] {
          (void)checkpoint_command({"prune", directory.path(), "--damaged"});
        }).ends_with("holds no complete checkpoint: nothing is removed"));
  checkpoint::SingleRankGroup one;
  checkpoint::Saver saver(checkpoint::PosixFileSystem::make(directory.path()), one,
                          {.run_id = "run"});
  save(saver, one, 16, 1);
  CHECK(checkpoint_command({"prune", directory.path(), "--damaged"}).text == "nothing to remove\n");
  CHECK(fs::exists(directory / "step-4/config.json"));
}

TEST_CASE("a folder that is no output has no checkpoints, whatever its files are called") {
  const TempFolder directory;
  for (const char* const file : {"changed.ckpt", "step-9", "zero_to_fp32.py", "iter_notes",
                                 "global_step.txt", "pytorch_model_fsdp_notes"}) {
    directory.write(file, "x");
  }
  for (const char* const name : {"step-5", "step-7", "a.ckpt", "iter_old", "global_steps"}) {
    fs::create_directory(directory / name);
  }
  directory.write("step-7/notes.txt", "mine");
  fs::create_directories(directory / "checkpoint-4/global_step4");
  const auto answer = checkpoint_command({"list", directory.path()});
  CHECK(answer.status == 0);
  const std::string skipped =
      "skipped step-5: not a checkpoint of Zeroth: it has no zeroth/manifest.json\n"
      "skipped step-7: not a checkpoint of Zeroth: it has no zeroth/manifest.json\n"
      "skipped a.ckpt: not a checkpoint of Zeroth: it has no zeroth/manifest.json\n"
      "skipped changed.ckpt: not a checkpoint of Zeroth: it has no zeroth/manifest.json\n"
      "skipped checkpoint-4: not a checkpoint of Zeroth: it was written by DeepSpeed (global_step4 "
      "is in it)\n";
  CHECK(answer.text == directory.path().string() + "\n  no checkpoints\n" + skipped);
  for (const char* const verb : {"show", "verify"}) {
    CHECK(message_of<Error>([&] {
            (void)checkpoint_command({verb, directory.path()});
          }) == directory.path().string() + " holds no checkpoints");
  }
  checkpoint::SingleRankGroup one;
  checkpoint::Saver saver(checkpoint::PosixFileSystem::make(directory.path()), one,
                          {.run_id = "run"});
  save(saver, one, 16, 1);
  const auto verified = checkpoint_command({"verify", directory.path()});
  CHECK(verified.status == 0);
  CHECK(verified.text.starts_with("step-16: good"));
  CHECK(verified.text.ends_with(skipped));
  CHECK(checkpoint_command({"prune", directory.path(), "--damaged"}).text == "nothing to remove\n");
  CHECK(fs::exists(directory / "step-7/notes.txt"));
  fs::create_directories(directory / "step-8/zeroth");  // what a copy that was broken off leaves
  CHECK(checkpoint_command({"list", directory.path()}).status == 1);
  CHECK(checkpoint_command({"prune", directory.path(), "--damaged"}).text == "removed step-8\n");
}

TEST_CASE("what cannot be meant is refused") {
  const Output output;
  const TempFolder empty;
  CHECK(contains(refused({}), "COMMAND"));
  CHECK(contains(refused({"list"}), "DIR"));
  CHECK(refused({"remove", "x"}) ==
        "checkpoint remove: must be list, show, verify or prune (zeroth checkpoint --help)");
  CHECK(refused({"list", "x", "--keep", "3"}) == "checkpoint list: --keep is only valid for prune");
  CHECK(refused({"prune", "x", "--keep", "0"}) ==
        "checkpoint prune: --keep 0: at least one must be kept");
  const std::string one = output.checkpoints() + "/step-4";
  CHECK(refused({"prune", one}) ==
        "checkpoint prune: " + one + " is one checkpoint; give the folder that contains it");
  CHECK(message_of<Error>([&] {
          (void)checkpoint_command({"list", "/no/such"});
        }) == "/no/such: there is no such folder");
  for (const char* const verb : {"show", "verify"}) {
    CHECK(message_of<Error>([&] {
            (void)checkpoint_command({verb, empty.path()});
          }) == empty.path().string() + " holds no checkpoints");
  }
  CHECK(contains(checkpoint_command({"list", empty.path()}).text, "  no checkpoints\n"));
  CHECK(contains(checkpoint_command({"--help"}).text, "Exit code: 0, or 1"));
}

TEST_CASE("best_checkpoint_gone: prune keeps the run's best model, and says so") {
  const TempFolder directory;
  checkpoint::SingleRankGroup one;
  checkpoint::Saver saver(checkpoint::PosixFileSystem::make(directory / "out/checkpoints"), one,
                          {.run_id = "run-1", .keep = 0});
  for (const int64_t step : {2, 4, 6, 8}) {
    checkpoint::Save save = saver.begin(step, 1000);
    checkpoint::ChunkFile file =
        save.chunk_file({checkpoint::TensorChunk::full("w", "master", "F32", {1})});
    const float value = 1;
    file.write(0, std::as_bytes(std::span(&value, 1)));
    checkpoint::RankManifest mine;
    mine.files.push_back(file.finish(save.chunk_file_name()));
    checkpoint::Manifest facts;
    facts.counters[std::string(checkpoint::kBestCounter)] = std::min<int64_t>(step, 4);
    save.commit(mine, facts);
  }
  const std::string out = directory / "out";
  CHECK(checkpoint_command({"prune", out, "--dry-run"}).text ==
        "would remove step-2\nkept step-4: it holds the best model of the run\n");
  CHECK(checkpoint_command({"prune", out}).text ==
        "removed step-2\nkept step-4: it holds the best model of the run\n");
  CHECK(checkpoint_command({"prune", out, "--keep", "3"}).text == "nothing to remove\n");
  CHECK(fs::exists(directory / "out/checkpoints/step-4"));
}

TEST_CASE("verify_beside_run: what a run removes meanwhile is no fault") {
  const Output output;
  std::atomic<bool> ends = false;
  std::jthread run([&] {
    checkpoint::SingleRankGroup one;
    checkpoint::Saver saver(checkpoint::PosixFileSystem::make(output.checkpoints()), one,
                            {.run_id = "run-2", .keep = 1});
    for (int64_t step = 13; !ends; ++step) save(saver, one, step, step);
  });
  for (int i = 0; i < 100; ++i) {
    for (const char* const verb : {"verify", "list", "show"}) {
      const std::string failure = message_of<Error>([&] {
        const auto answer = checkpoint_command({verb, output.path()});
        CHECK_MESSAGE(answer.status == 0, answer.text);
      });
      CHECK_MESSAGE(failure == "no exception", verb, ": ", failure);
    }
  }
  ends = true;
}

TEST_CASE("trainers_own_checkpoint: each verb calls another program's checkpoint by its name") {
  const TempFolder directory;
  directory.write("optimizer.pt", "x");
  const std::string said = directory.path().string() +
                           " is a checkpoint of Hugging Face's Trainer (it contains optimizer.pt)";
  CHECK(contains(checkpoint_command({"list", directory.path()}).text, said));
  for (const char* const verb : {"show", "verify"}) {
    CHECK(message_of<Error>([&] {
            (void)checkpoint_command({verb, directory.path()});
          }).starts_with(said));
  }
  CHECK(contains(run_zeroth({"export", directory.path(), directory / "hf"}).err, said));
}

TEST_CASE("show_written: an empty path, or a time beyond all calendars, is told in our words") {
  const Output output;
  CHECK(refused({"list", ""}) == "checkpoint: an argument is empty (zeroth checkpoint --help)");
  CHECK(run_zeroth({"checkpoint", "list", "", "x"}).status == 2);
  const auto exported = run_zeroth({"export", "", "x"});
  CHECK(exported.status == 2);
  CHECK(exported.err == "zeroth: error: export: an argument is empty (zeroth export --help)\n");
  CHECK(run_zeroth({"export", output.path(), ""}).err ==
        "zeroth: error: export: an argument is empty (zeroth export --help)\n");
  const fs::path manifest = output.checkpoints() + "/step-12/zeroth/manifest.json";
  std::string text = read_text(manifest);
  const size_t at = text.find("\"written\": ") + 11;
  text.replace(at, text.find(',', at) - at, "4611686018427387903");
  text.resize(text.size() - 25);
  write_text(manifest, text + "  \"crc32c\": \"" + format_crc(crc32c(text)) + "\"\n}\n");
  const auto shown = run_zeroth({"checkpoint", "show", output.checkpoints() + "/step-12"});
  CHECK(shown.status == 1);
  CHECK_MESSAGE(contains(shown.err, "step-12/zeroth/manifest.json: written is 4611686018427387903"),
                shown.err);
}

TEST_CASE("zeroth checkpoint is a command of the program, with its status") {
  const Output output;
  const auto good = run_zeroth({"checkpoint", "verify", output.path()});
  CHECK(good.status == 0);
  CHECK(good.err == "");
  CHECK(lines_of(good.out).size() == 3);
  output.damage(8);
  CHECK(run_zeroth({"checkpoint", "verify", output.path()}).status == 1);
  const auto bad = run_zeroth({"checkpoint", "lst", output.path()});
  CHECK(bad.status == 2);
  CHECK(bad.err ==
        "zeroth: error: checkpoint lst: must be list, show, verify or prune (zeroth "
        "checkpoint --help)\n");
  const auto missing = run_zeroth({"checkpoint", "list", "/no/such"});
  CHECK(missing.status == 1);
  CHECK(missing.err == "zeroth: error: /no/such: there is no such folder\n");
}

}  // namespace zeroth::launcher::checkpoint_command_test
