// Runs on systems that are short of something, or that take it away in the middle: real processes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>

#include "model/hf/safetensors_writer.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::bad_surroundings_test {
namespace {

constexpr const char* kShort =
    "--model model --data train.bin --seq-len 16 --steps 3 --global-batch 2 --micro-batch 1 ";
constexpr const char* kEndless =
    "--model model --data train.bin --seq-len 16 --steps 1000000 --global-batch 2 --micro-batch 1 ";

// Words of the shell: `zeroth RANKS ARGUMENTS...` is finetune under the launcher, `until_step N`
// waits for the output of $job in the file out.
std::string script(const std::string& rest) {
  return fmt::format(
      "zeroth() {{ ranks=$1; shift; '{}/zeroth' --num_gpus $ranks finetune \"$@\"; }}\n"
      "until_step() {{ while ! grep -q \"step $1/\" out && kill -0 $job; do sleep 0.05; done; "
      "}}\n{}",
      ZEROTH_BIN_DIR, rest);
}

}  // namespace

TEST_CASE(
    "a run whose outputs are closed, full or without a reader trains and saves all the same") {
  const Workbench bench;
  for (const char* outputs : {">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", ">/dev/full 2>&1"}) {
    CAPTURE(outputs);
    const auto result =
        bench.shell(fmt::format("rm -rf saved; exec 3>&2\n\"$FINETUNE\" {} --metrics m.jsonl "
                                "--output saved {}; echo status $? >&3",
                                kShort, outputs));
    CHECK(has(result.err, "status 0\n"));
    CHECK(bench.steps("m.jsonl").size() == 3);  // and nothing else landed there
    CHECK(std::filesystem::exists(bench / "saved/model.safetensors"));
  }
  for (const char* program : {"\"$FINETUNE\"", "zeroth 2"}) {
    CAPTURE(program);
    const auto result = bench.shell(script(fmt::format(
        "rm -rf saved\n({} {} --output saved; echo status $? >&2) | head -n 1", program, kShort)));
    CHECK(has(result.err, "status 0\n"));
    CHECK(has(result.err, "warning: standard output is lost from here on: Broken pipe; "));
    CHECK(std::filesystem::exists(bench / "saved/model.safetensors"));
  }
}

TEST_CASE("a configuration that is printed for nobody is no success") {
  const Workbench bench;
  for (const char* program : {"\"$FINETUNE\"", "zeroth 2"}) {
    CAPTURE(program);
    const auto full =
        bench.shell(script(fmt::format("{} {} --print-config >/dev/full", program, kShort)));
    CHECK(full.code == 1);
    CHECK(has(full.err, "error: standard output cannot be written: No space left on device\n"));
    const auto closed =
        bench.shell(script(fmt::format("{} {} --print-config >&-", program, kShort)));
    CHECK(closed.code == 1);
    CHECK(has(closed.err, "error: standard output is closed\n"));
  }
}

TEST_CASE("an evaluation whose loss is printed for nobody is no success, unless --metrics has it") {
  const Workbench bench;
  const std::string evaluation = "--model model --eval-only --data train.bin --seq-len 16";
  for (const char* program : {"\"$FINETUNE\"", "zeroth 2"}) {
    CAPTURE(program);
    const auto run = [&](const std::string& rest) {
      return bench.shell(script(fmt::format("{} {} {}", program, evaluation, rest)));
    };
    const auto full = run(">/dev/full");
    CHECK(full.code == 1);
    CHECK(has(full.err, "error: standard output cannot be written: No space left on device\n"));
    const auto closed = run(">&-");
    CHECK(closed.code == 1);
    CHECK(has(closed.err, "error: standard output is closed\n"));
    for (const char* output : {">/dev/full", ">&-"}) {
      CAPTURE(output);
      std::filesystem::remove(bench / "m.jsonl");
      CHECK(run(fmt::format("--metrics m.jsonl {}", output)).code == 0);
      CHECK(bench.evaluations("m.jsonl").size() == 1);
    }
    const auto unread =
        bench.shell(script(fmt::format("({} {}; echo status $? >&2) | :", program, evaluation)));
    CHECK(has(unread.err, "status 141\n"));
    CHECK_FALSE(has(unread.err, "error"));
  }
}

TEST_CASE("data that shrinks while it is used is an error with path and offset, not a signal") {
  const Workbench bench;
  const auto result =
      bench.shell(script(fmt::format("zeroth 2 {} >out & job=$!\n"
                                     "until_step 3; : >train.bin\nwait $job",
                                     kEndless)));
  CHECK(result.code == 1);
  CHECK(has(result.err, ": error: cannot read "));
  CHECK(has(result.err, "/train.bin at offset "));
  CHECK(has(result.err, ": it has only 0 bytes now: it was truncated while in use\n"));
  CHECK_FALSE(has(result.err, "SIGBUS"));
}

TEST_CASE(
    "weights that shrink while they are read are an error with path and offset, not a signal") {
  const Workbench bench;
  constexpr int64_t kVocabulary = 448;
  auto config = nlohmann::json::parse(bench.read("model/config.json"));
  config["num_hidden_layers"] = 1;
  bench.write("model/config.json", config.dump());
  const std::string layer = "model.layers.0.";
  model::SafetensorsWriter(bench / "model/model.safetensors", torch::kFloat32,
                           {{"model.embed_tokens.weight", {kVocabulary, 32}},
                            {layer + "input_layernorm.weight", {32}},
                            {layer + "self_attn.q_proj.weight", {32, 32}},
                            {layer + "self_attn.k_proj.weight", {16, 32}},
                            {layer + "self_attn.v_proj.weight", {16, 32}},
                            {layer + "self_attn.o_proj.weight", {32, 32}},
                            {layer + "post_attention_layernorm.weight", {32}},
                            {layer + "mlp.gate_proj.weight", {64, 32}},
                            {layer + "mlp.up_proj.weight", {64, 32}},
                            {layer + "mlp.down_proj.weight", {32, 64}},
                            {"model.norm.weight", {32}},
                            {"lm_head.weight", {kVocabulary, 32}}});
  // Stopped when it has read a part of them.
  const auto result = bench.shell(fmt::format(
      "{} \"$FINETUNE\" --model model --eval-only --data qa.jsonl --prompt-field question "
      "--completion-field answer --seq-len 16 > said & pid=$!\n"
      "until grep -q '^State:.T' /proc/$pid/status || ! kill -0 $pid; do sleep 0.01; done\n"
      ": > model/model.safetensors; kill -CONT $pid; wait $pid",
      signalled_behind("", SIGSTOP)));
  CAPTURE(result.err);
  CHECK(result.code == 1);
  CHECK(has(result.err, "finetune: error: cannot read "));
  CHECK(has(result.err, "/model/model.safetensors at offset "));
  CHECK(has(result.err, ": it has only 0 bytes now: it was truncated while in use\n"));
}

TEST_CASE("a model beyond ulimit -f is an error before the first step, not a signal") {
  const Workbench bench;
  const auto result = bench.shell(
      script(fmt::format("ulimit -f 64\nzeroth 2 {} --output saved --overwrite", kShort)));
  CHECK(result.code == 2);
  CHECK(has(result.err, "--output saved: a file of "));
  CHECK(has(result.err, "no process may write more than 32.0 KiB (ulimit -f)\n"));
  CHECK_FALSE(has(result.err, "SIGXFSZ"));
  CHECK_FALSE(has(result.out, "step 1/"));
}

TEST_CASE("a swap file beyond ulimit -f is an error with path, size and limit, not a signal") {
  const Workbench bench;
  bench.write("nvme.json", fmt::format(R"({{"zero_optimization": {{"stage": 2,
    "offload_optimizer": {{"device": "nvme", "nvme_path": "{}"}}}}}})",
                                       (bench / "nvme").string()));
  const auto result =
      bench.shell(script(fmt::format("ulimit -f 64\nzeroth 2 {} --deepspeed nvme.json", kShort)));
  CAPTURE(result.err);
  CHECK(result.code == 1);
  CHECK(has(result.err, (bench / "nvme/zeroth-").string()));
  CHECK(has(result.err, ".optimizer.swap needs "));
  CHECK(has(result.err, " bytes): File too large (ulimit -f: 32768 bytes)\n"));
  CHECK_FALSE(has(result.err, "SIGXFSZ"));
  CHECK(std::filesystem::is_empty(bench / "nvme"));
}

TEST_CASE("a run under a small ulimit -n says that this is the reason") {
  const Workbench bench;
  // Whoever started the tests may have left them a file open as the fourth, which the loader needs.
  for (const int files : {4, 5, 6, 12, 20}) {
    CAPTURE(files);
    const auto alone =
        bench.shell(fmt::format("exec 3>&-; ulimit -n {}; exec \"$FINETUNE\" {}", files, kShort));
    CHECK(alone.code == 1);
    CHECK(alone.err ==
          fmt::format("finetune: error: this process may have {} files open (ulimit -n), but needs "
                      "32\n",
                      files));
    const auto launched = bench.shell(
        fmt::format("exec 3>&-; ulimit -n {}; exec '{}/zeroth' --num_gpus 2 finetune {}", files,
                    ZEROTH_BIN_DIR, kShort));
    CHECK(launched.code == 1);
    CHECK(has(launched.err, fmt::format("may have {} files open (ulimit -n)", files)));
  }
  CHECK(bench
            .shell(fmt::format("ulimit -n 32; exec '{}/zeroth' --num_gpus 2 finetune {}",
                               ZEROTH_BIN_DIR, kShort))
            .code == 0);
}

TEST_CASE(
    "a run under a small ulimit -v says that this is the reason, and is never a bug of ours") {
  const Workbench bench;
  for (const int megabytes : {200, 400, 550, 600, 2000}) {
    CAPTURE(megabytes);
    const auto result =
        bench.shell(fmt::format("ulimit -v {}; exec '{}/zeroth' --num_gpus 2 finetune {}",
                                megabytes * 1000, ZEROTH_BIN_DIR, kShort));
    CAPTURE(result.err);
    CHECK(result.code != 70);
    CHECK((result.code == 0 || has(result.err, "ulimit -v")));
    if (megabytes <= 400) CHECK(result.code != 0);
    if (megabytes >= 2000) CHECK(result.code == 0);
  }
}

}  // namespace zeroth::trainer::bad_surroundings_test
