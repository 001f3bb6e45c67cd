#include "configs/inspect.h"

#include <algorithm>

#include "tests/configs/support.h"

namespace zeroth::configs::inspect_test {
namespace {

Inspection inspect_text(const std::string& text, std::optional<int64_t> ranks = {}) {
  return inspect(parse_text(text, "test.json"), ranks);
}

// "state value origin" of a key; empty where it is not listed.
std::string line_of(const std::vector<KeyReport>& keys, const std::string& path) {
  for (const KeyReport& key : keys) {
    if (key.path == path) return fmt::format("{} {} {}", key.state, key.value, key.origin);
  }
  return "";
}

}  // namespace

TEST_CASE("each key of a file is reported with its state, what it comes to and why") {
  const Inspection found = inspect_text(R"({"fp17": 1, "train_batch_size": 8,
      "optimizer": {"type": "Adam", "params": {"lr": "auto", "torch_adam": true}},
      "zero_optimization": {"stage": 5, "reduce_bucket_size": "auto", "overlap_comm": "auto",
                            "offload_optimizer": {"device": "cpu"}, "zenflow": {"offload": true}},
      "sparse_gradients": false, "wandb": {"enabled": false, "project": "x"}})");
  CHECK(line_of(found.given, "train_batch_size") == "honoured 8 file");
  CHECK(line_of(found.given, "fp17") == "unknown 1 ");
  CHECK(line_of(found.given, "optimizer.params.lr") == "honoured \"auto\" auto: --lr");
  CHECK(line_of(found.given, "optimizer.params.torch_adam") ==
        "no effect true there is one implementation");
  CHECK(line_of(found.given, "zero_optimization.stage") == "refused 5 file");
  CHECK(line_of(found.given, "zero_optimization.reduce_bucket_size") ==
        "honoured \"auto\" auto: hidden size squared");
  CHECK(line_of(found.given, "zero_optimization.overlap_comm") ==
        "honoured true auto: the default");
  CHECK(line_of(found.given, "zero_optimization.offload_optimizer.device") ==
        "honoured \"cpu\" file");
  CHECK(line_of(found.given, "zero_optimization.zenflow")
            .starts_with("refused {\"offload\":true} not supported yet"));
  CHECK(line_of(found.given, "sparse_gradients").starts_with("off false"));
  CHECK(line_of(found.given, "wandb").starts_with("off {"));
  CHECK(line_of(found.given, "optimizer") == "");
  CHECK(line_of(found.by_default, "gradient_clipping") == "honoured 1.0 DeepSpeed's default");
  CHECK(line_of(found.by_default, "zero_optimization.stage") == "");
  CHECK(found.errors.size() == 3);
}

TEST_CASE("a key that is ignored is unknown, and no reason to refuse the file") {
  const std::string text = R"({"log": 1, "_why": 2, "optimizer": {"type": "OneBitAdam"}})";
  FlagValues flags;
  flags.accept_uncompressed = true;
  const Inspection lenient = inspect(parse_text(text, "x"), {}, flags);
  CHECK(line_of(lenient.given, "log") == "unknown 1 ignored, as by DeepSpeed");
  CHECK(line_of(lenient.given, "_why") == "");
  CHECK(lenient.errors.empty());
  flags.strict = true;
  const Inspection strict = inspect(parse_text(text, "x"), {}, flags);
  CHECK(line_of(strict.given, "log") == "unknown 1 ");
  CHECK(strict.errors.size() == 1);
}

TEST_CASE("a section that is off but holds a name that does not exist is refused") {
  const Inspection found = inspect_text(R"({"wandb": {"enabled": false, "projekt": "x"}})");
  CHECK(line_of(found.given, "wandb").starts_with("refused"));
}

TEST_CASE("wandb_key: a service that is on has no effect of its own, and its secret stays hidden") {
  const Inspection found =
      inspect_text(R"({"comet": {"enabled": true, "api_key": "hidden", "project": "x"}})");
  CHECK(
      line_of(found.given, "comet").starts_with("no effect {\"enabled\":true} external services"));
  CHECK(found.errors.empty());
  CHECK(contains(found.notes, "comet: external services are not supported"));
}

TEST_CASE("the old form of offload is honoured, and refused, under its own name") {
  const Inspection found = inspect_text(nested("zero_optimization.cpu_offload", "true"));
  CHECK(line_of(found.given, "zero_optimization.cpu_offload").starts_with("honoured true"));
  CHECK(line_of(found.given, "zero_optimization.offload_optimizer.device") ==
        "honoured \"cpu\" file");
  CHECK(found.errors.empty());
  const Inspection bad = inspect_text(nested("zero_optimization.cpu_offload", "1"));
  CHECK(line_of(bad.given, "zero_optimization.cpu_offload").starts_with("refused 1"));
  CHECK(std::any_of(found.notes.begin(), found.notes.end(), [](const std::string& note) {
    return note.find("cpu_offload true is the old form of") != std::string::npos;
  }));
}

TEST_CASE("batch sizes are checked for the ranks given, or for as many as fit") {
  const char* text = R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4,
                         "gradient_accumulation_steps": 2})";
  CHECK(inspect_text(text).errors.empty());
  CHECK(inspect_text(text, 4).errors.empty());
  CHECK(inspect_text(text, 3).errors.size() == 1);
  CHECK(inspect_text(R"({"train_batch_size": 33, "train_micro_batch_size_per_gpu": 4,
                         "gradient_accumulation_steps": 2})")
            .errors.size() == 1);
}

TEST_CASE("what only a run knows is no fault of the file") {
  const std::string fixtures = std::string(ZEROTH_SOURCE_DIR) + "/tests/configs/fixtures/";
  const Inspection found = inspect(load(fixtures + "hugging_face_zero3.json"), {});
  CHECK(found.errors.empty());
  CHECK(std::none_of(found.given.begin(), found.given.end(),
                     [](const KeyReport& key) { return key.state == "refused"; }));
}

TEST_CASE("keys of offload are listed with what they come to, and flags may still come") {
  const Inspection none = inspect_text("{}");
  const std::string optimizer = "zero_optimization.offload_optimizer.";
  CHECK(line_of(none.by_default, optimizer + "device") == "honoured \"none\" default");
  CHECK(line_of(none.by_default, optimizer + "nvme_path") == "honoured null default");
  CHECK(line_of(none.by_default, "aio.queue_depth") == "honoured 32 default");
  const Inspection found = inspect_text(R"({"bf16": {"bf16_master_weights_and_grads": true},
      "activation_checkpointing": {"cpu_checkpointing": true}, "zero_optimization": {"stage": 1,
      "offload_optimizer": {"device": "cpu", "step": "auto", "ratio": "auto"}}})");
  CHECK(found.errors.empty());
  CHECK(line_of(found.given, optimizer + "ratio") == "honoured 1.0 auto: the default");
  CHECK(line_of(found.given, optimizer + "step") ==
        "honoured \"auto\" auto: both are timed when training starts, and the faster one is used");
  CHECK(std::none_of(found.notes.begin(), found.notes.end(), [](const std::string& note) {
    return note.find("no effect") != std::string::npos;
  }));
}

}  // namespace zeroth::configs::inspect_test
