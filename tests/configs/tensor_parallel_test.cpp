#include "configs/inspect.h"
#include "tests/configs/support.h"

namespace zeroth::configs::tensor_parallel_test {
namespace {

constexpr RunFacts kFourRanks{.world_size = 4, .hidden_size = 64, .total_steps = 100};

// The section, with more keys beside it.
std::string tensor(const std::string& allowed_keys, const std::string& beside = "") {
  return fmt::format(R"({{{}"tensor_parallel": {{{}}}}})", beside, allowed_keys);
}

FlagValues flag(int64_t size) {
  FlagValues flags;
  flags.tensor_parallel = size;
  return flags;
}

}  // namespace

TEST_CASE("a layer is split over autotp_size ranks, and over none by default, 0 and 1") {
  CHECK(config_of("{}").tensor_parallel.size == 1);
  for (const char* off : {"0", "1", "\"auto\""}) {
    CHECK(config_of(tensor(fmt::format(R"("autotp_size": {})", off))).tensor_parallel.size == 1);
  }
  const TensorParallelConfig split =
      config_of(tensor(R"("autotp_size": 2, "tp_overlap_comm": true)")).tensor_parallel;
  CHECK(split.size == 2);
  CHECK(split.overlap_comm);
  CHECK(complaints_of(tensor(R"("autotp_size": -1)")) ==
        "tensor_parallel.autotp_size: expected an integer in 0..1000000, found -1");
}

TEST_CASE("--tensor-parallel fills what is absent or auto, and has to equal what is not") {
  for (const char* text : {"{}", R"({"tensor_parallel": {"autotp_size": "auto"}})"}) {
    const Resolved resolved = resolve_text(text, flag(2));
    CHECK(resolved.config.tensor_parallel.size == 2);
    CHECK(resolved.origins.at("tensor_parallel.autotp_size").ends_with("--tensor-parallel"));
  }
  CHECK(error_of(tensor(R"("autotp_size": 2)"), flag(2)) == "");
  CHECK(error_of(tensor(R"("autotp_size": 0)"), flag(1)) == "");
  CHECK(error_of(tensor(R"("autotp_size": 2)"), flag(4), kFourRanks) ==
        "test.json: tensor_parallel.autotp_size: 2 in the file, but --tensor-parallel 4; make them "
        "equal or write \"auto\" in the file");
  CHECK(error_of("{}", flag(-2)) == "test.json: --tensor-parallel: expected 0..1000000, found -2");
}

TEST_CASE("the ranks that split a layer have to come in whole groups") {
  RunFacts facts = kFourRanks;
  facts.world_size = 6;
  CHECK(error_of(tensor(R"("autotp_size": 4)"), {}, facts) ==
        "test.json: tensor_parallel.autotp_size: 4 does not divide the number of ranks, 6: set it "
        "to 3, or start 8 ranks");
  CHECK(error_of("{}", flag(4)) ==
        "test.json: --tensor-parallel: 4 does not divide the number of ranks, 2: set it to 2, or "
        "start 4 ranks");
  CHECK_THROWS_AS(resolve_batch(parse_text(tensor(R"("autotp_size": 3)"), "x"), {}, 4), Error);
}

TEST_CASE("ranks that split a layer count as one in the batch") {
  const auto batch = [](const std::string& sizes, int64_t ranks) {
    const std::string text = tensor(R"("autotp_size": 2)", sizes + ", ");
    return resolve_batch(parse_text(text, "test.json"), {}, ranks);
  };
  CHECK(batch(R"("train_micro_batch_size_per_gpu": 3)", 4).train_batch_size == 6);
  CHECK(batch(R"("train_batch_size": 8)", 4).micro_batch_size == 4);
  CHECK(batch(R"("train_batch_size": 8, "train_micro_batch_size_per_gpu": 1)", 2)
            .accumulation_steps == 8);
  const Resolved resolved = resolve_text(tensor(R"("autotp_size": 2)"), {}, kFourRanks);
  CHECK(resolved.config.batch.train_batch_size == 16);
  CHECK(resolved.config.data_ranks(4) == 2);
  CHECK(resolved.origins.at("train_batch_size") == "micro-batch * accumulation * data ranks");
  CHECK(error_of(tensor(R"("autotp_size": 2)", R"("train_batch_size": 7, )"), {}, kFourRanks) ==
        "test.json: train_batch_size 7 != micro 3 * accumulation 1 * data ranks 2: set "
        "train_batch_size to 8; no micro * accumulation gives 7 on 2 data ranks");
  CHECK(error_of(R"({"train_batch_size": 8, "tensor_parallel": {"autotp_size": "2"}})") ==
        "test.json: tensor_parallel.autotp_size: expected an integer, found the string \"2\"");
}

TEST_CASE("a tp_size other than 1 has to equal autotp_size, in both spellings") {
  for (const char* name : {"tp", "tensor_parallel"}) {
    const auto text = [&](const char* outer, int inner) {
      return tensor(fmt::format(R"({}"{}": {{"tp_size": {}}})", outer, name, inner));
    };
    CHECK(error_of(text(R"("autotp_size": 2, )", 1)) == "");
    CHECK(error_of(text(R"("autotp_size": 2, )", 2)) == "");
    CHECK(error_of(text("", 2), flag(2)) == "");
    CHECK(error_of(text(R"("autotp_size": 2, )", 4)) ==
          fmt::format("test.json: tensor_parallel.{}.tp_size: 4, but tensor_parallel.autotp_size "
                      "2: make them equal, or leave it out",
                      name));
    CHECK(error_of(text("", 2))
              .ends_with("tp_size: 2 alone has no effect: write tensor_parallel.autotp_size 2"));
  }
}

TEST_CASE("a preset is a name that exists, and the model's own description decides") {
  const Resolved resolved = resolve_text(tensor(R"("autotp_size": 2, "preset_model": "qwen2",
      "partition_config": {"use_default_specs": false, "layer_specs": []})"));
  CHECK(has_note(resolved,
                 "tensor_parallel.preset_model \"qwen2\" has no effect: the model description"));
  CHECK(has_note(resolved, "tensor_parallel.partition_config.use_default_specs false has no"));
  CHECK(error_of(tensor(R"("autotp_size": 2, "preset_model": "lama")"))
            .find("tensor_parallel.preset_model: expected \"llama\" | \"bloom\" | ") !=
        std::string::npos);
}

TEST_CASE("what would split layers in another way is refused while it is on") {
  for (const char* key :
       {R"("partition_config": {"layer_specs": [{"patterns": ["x"]}]})", R"("kernel_inject": true)",
        R"("injection_policy_tuple": ["x"])", R"("keep_module_on_host": true)",
        R"("replace_with_kernel_inject": true)", R"("tp": {"mpu": {}})", R"("tp": {"tp_group": 1})",
        R"("tp": {"tp_grain_size": 64})", R"("tensor_parallel": {"tp_grain_size": 64})"}) {
    CAPTURE(key);
    const auto text = [&](int size) {
      return tensor(fmt::format(R"("autotp_size": {}, {})", size, key));
    };
    CHECK(error_of(text(2)).find(" is refused: ") != std::string::npos);
    CHECK(error_of(text(1)) == "");
    CHECK(error_of(text(0), flag(1)) == "");
  }
  CHECK(error_of(tensor(R"("kernel_inject": true)"), flag(2)).find(" is refused: ") !=
        std::string::npos);
  CHECK(error_of(tensor(R"("autotp_size": 1, "tp": {"tp_sise": 1})")) ==
        "test.json: tensor_parallel.tp.tp_sise: unknown key; did you mean "
        "tensor_parallel.tp.tp_size?");
}

TEST_CASE("dtype has to be the precision of the run") {
  const std::string bf16 = R"("bf16": {"enabled": true}, )";
  CHECK(error_of(tensor(R"("autotp_size": 2, "dtype": "bfloat16")", bf16)) == "");
  CHECK(error_of(tensor(R"("autotp_size": 2, "dtype": "fp16")", bf16)) ==
        "test.json: tensor_parallel.dtype: fp16, but the run computes in bf16: leave it out or "
        "make them equal");
  CHECK(error_of(tensor(R"("autotp_size": 0, "dtype": "fp16")", bf16)) == "");
  const auto inspected = [](const std::string& text) {
    return inspect(parse_text(text, "x"), {}).errors.size();
  };
  CHECK(inspected(tensor(R"("autotp_size": 2, "dtype": "fp16")", bf16)) == 1);
  CHECK(inspected(tensor(R"("autotp_size": 2, "dtype": "bf16")")) == 0);  // --bf16 may come
}

TEST_CASE("a file that splits layers is checked for as many ranks as fit it, and says so") {
  const std::string text = tensor(R"("autotp_size": 2)");
  const Inspection one = inspect(parse_text(text, "x"), {});
  CHECK(one.errors.empty());
  CHECK(
      contains(one.notes, "tensor_parallel.autotp_size 2: checked for 2 ranks, data 1 x tensor 2"));
  const Inspection two = inspect(parse_text(tensor(R"("autotp_size": 2)", R"("train_batch_size": 16,
          "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, )"),
                                            "x"),
                                 {});
  CHECK(two.errors.empty());
  CHECK(contains(two.notes, "checked for 4 ranks, data 2 x tensor 2"));
  const Inspection three = inspect(parse_text(text, "x"), 3);
  CHECK(three.errors.size() == 1);
  CHECK_FALSE(contains(three.notes, "checked for"));
}

}  // namespace zeroth::configs::tensor_parallel_test
