// Files written with the keys of those that DeepSpeed's and Trainer's documentation and well-known
// fine-tuning projects publish: each loads, or is refused for a reason that stands here.
#include <filesystem>
#include <map>

#include "tests/configs/support.h"

namespace zeroth::configs::published_test {
namespace {

struct Refusal {
  std::string message;  // how it begins
  std::string reason;
};

// Also with --accept-uncompressed.
const std::map<std::string, Refusal> kRefused = {
    {"axolotl_zero1_compile",
     {"compile: refused: there is no Python to compile", "what is compiled would be Python"}},
    {"deepspeed_autotuning",
     {"autotuning: refused: not supported yet", "nothing tries batch sizes"}},
    {"deepspeed_curriculum",
     {"curriculum_learning: refused: not supported", "removed from DeepSpeed"}},
    {"deepspeed_data_efficiency",
     {"data_efficiency: refused: not supported yet", "it changes which samples are trained"}},
    {"deepspeed_deepcompile",
     {"compile: refused: there is no Python to compile", "what is compiled would be Python"}},
    {"deepspeed_layer_drop",
     {"progressive_layer_drop: refused: not supported", "removed from DeepSpeed"}},
    {"deepspeed_moq", {"quantize_training: refused: not supported", "removed from DeepSpeed"}},
    {"deepspeed_zenflow",
     {"zero_optimization.zenflow: refused: not supported yet", "it delays updates"}},
    {"deepspeed_zeropp",
     {"zero_optimization.zero_quantized_weights: true is refused", "it rounds what is sent"}},
    {"open_assistant", {"scheduler.params.total_num_steps: missing", "DeepSpeed refuses it, too"}},
};

// What is said of the others, where it is more than notes.
const std::map<std::string, std::vector<std::string>> kWarnings = {
    {"llama_factory_zero3_offload",
     {"comms_config: ignored, as by DeepSpeed", "monitor_config: ignored, as by DeepSpeed"}},
    {"llama_factory_fp8", {"fp8: ignored, as by DeepSpeed"}},
    {"deepspeed_bert_pretraining",
     {"optimizer.params.max_grad_norm 0.5 is used as gradient_clipping"}},
    {"deepspeed_monitor",
     {"wandb: external services are not supported", "comet: external services are not supported"}},
    {"deepspeed_getting_started", {"zero_optimization: true is the old form"}},
    {"deepspeed_onebit_adam", {"optimizer.type OneBitAdam runs uncompressed"}},
    {"deepspeed_onebit_lamb", {"optimizer.type OneBitLamb runs uncompressed"}},
    {"deepspeed_zero_one_adam", {"optimizer.type ZeroOneAdam runs uncompressed"}},
    {"trainer_infinity",
     {"zero_optimization.aio is the old name of aio", "aio.thread_count is the old name"}},
};

FlagValues flags_for(const std::string& name) {
  FlagValues flags;
  flags.for_trainer = !name.starts_with("deepspeed");
  flags.accept_uncompressed = true;
  if (flags.for_trainer) flags.warmup_steps = 3;
  return flags;
}

std::string error_of_file(const std::string& path, const FlagValues& flags) {
  try {
    resolve(load(path), flags, kFacts);
    return "";
  } catch (const Error& error) {
    return std::string(error.what()).substr(path.size() + 2);
  }
}

}  // namespace

TEST_CASE("published files load, or are refused for a reason") {
  size_t refused = 0, loaded = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(ZEROTH_SOURCE_DIR "/tests/configs/fixtures/published")) {
    const std::string name = entry.path().stem();
    CAPTURE(name);
    const std::string error = error_of_file(entry.path(), flags_for(name));
    const auto expected = kRefused.find(name);
    if (expected != kRefused.end()) {
      ++refused;
      CAPTURE(error);
      CHECK(error.find(expected->second.message) != std::string::npos);
      continue;
    }
    ++loaded;
    CHECK(error == "");
    if (!error.empty()) continue;
    const auto warnings = warnings_of(resolve(load(entry.path()), flags_for(name), kFacts));
    const auto said = kWarnings.find(name);
    if (said == kWarnings.end()) {
      CHECK(fmt::format("{}", fmt::join(warnings, "\n")) == "");
      continue;
    }
    REQUIRE(warnings.size() == said->second.size());
    for (const std::string& text : said->second) CHECK(contains(warnings, text));
  }
  CHECK(refused == kRefused.size());
  CHECK(loaded > 35);
}

TEST_CASE("published files of 1-bit optimizers are refused without --accept-uncompressed") {
  const FlagValues flags;
  for (const char* name : {"onebit_adam", "onebit_lamb", "zero_one_adam"}) {
    const std::string path = fmt::format("{}/tests/configs/fixtures/published/deepspeed_{}.json",
                                         ZEROTH_SOURCE_DIR, name);
    CHECK(error_of_file(path, flags).find("--accept-uncompressed") != std::string::npos);
  }
}

}  // namespace zeroth::configs::published_test
