#include "configs/inspect.h"
#include "tests/configs/support.h"

namespace zeroth::configs::lora_test {
namespace {

// The section with these keys.
std::string lora(const std::string& keys) {
  return fmt::format(R"({{"lora": {{{}}}}})", keys);
}

FlagValues with_peft() {
  FlagValues flags;
  flags.use_peft = true;
  return flags;
}

ModuleNames targets(std::vector<std::string> words) {
  FlagValues flags = with_peft();
  flags.lora_target_modules = std::move(words);
  return config_of("{}", flags).lora.target_modules;
}

}  // namespace

TEST_CASE("adapters are trained with a section, though it be empty, or with --use_peft") {
  CHECK_FALSE(config_of("{}").lora.enabled);
  CHECK_FALSE(config_of(R"({"lora": null})").lora.enabled);
  CHECK(config_of(lora("")).lora.enabled);
  CHECK(config_of("{}", with_peft()).lora.enabled);
  CHECK(config_of(R"({"lora": null})", with_peft()).lora.enabled);
  CHECK(error_of(R"({"lora": true})") == "test.json: lora: expected an object, found true");
}

TEST_CASE("a section has peft's defaults, and --use_peft those of TRL for what is left out") {
  const Resolved file = resolve_text(lora(""));
  CHECK(file.config.lora.r == 8);
  CHECK(file.config.lora.alpha == 8);
  CHECK(file.config.lora.dropout == 0);
  CHECK(file.origins.at("lora.r") == "default");
  const Resolved automatic = resolve_text(lora(R"("r": "auto", "target_modules": "auto")"));
  CHECK(automatic.config.lora.r == 8);
  CHECK(automatic.origins.at("lora.r") == "auto: peft's default");
  CHECK_FALSE(automatic.config.lora.target_modules.is_set());
  const Resolved flags = resolve_text("{}", with_peft());
  CHECK(flags.config.lora.r == 16);
  CHECK(flags.config.lora.alpha == 32);
  CHECK(flags.config.lora.dropout == 0.05);
  CHECK(flags.origins.at("lora.lora_alpha") == "default of --lora_alpha");
  const Resolved both = resolve_text(lora(R"("r": 4, "lora_dropout": "auto")"), with_peft());
  CHECK(both.config.lora.r == 4);
  CHECK(both.origins.at("lora.r") == "file");
  CHECK(both.config.lora.alpha == 32);
  CHECK(both.config.lora.dropout == 0.05);
}

TEST_CASE("flags fill what the file leaves out or to them, and have to equal what it has") {
  FlagValues flags;
  flags.lora_r = 4;
  flags.lora_alpha = 5;
  flags.lora_dropout = 0.5;
  flags.use_rslora = true;
  flags.lora_target_modules = {"v_proj", "q_proj"};
  flags.lora_modules_to_save = {"lm_head"};
  for (const std::string& text :
       {lora(""), lora(R"("r": "auto", "lora_alpha": "auto", "lora_dropout": "auto",
                          "use_rslora": "auto", "target_modules": "auto",
                          "modules_to_save": "auto")"),
        lora(R"("r": 4, "target_modules": ["q_proj", "v_proj"])")}) {
    const LoraConfig filled = config_of(text, flags).lora;
    CHECK(filled.r == 4);
    CHECK(filled.alpha == 5);
    CHECK(filled.dropout == 0.5);
    CHECK(filled.use_rslora);
    CHECK(filled.target_modules == ModuleNames{.names = {"q_proj", "v_proj"}});
    CHECK(filled.modules_to_save == std::vector<std::string>{"lm_head"});
  }
  const std::string error = error_of(lora(R"("r": 2, "lora_alpha": 1, "lora_dropout": 0,
      "use_rslora": false, "target_modules": "all-linear", "modules_to_save": ["wte"])"),
                                     flags);
  for (const char* pair :
       {"lora.r: 2 in the file, but --lora_r 4", "lora.lora_alpha: 1.0 in the file, but --lora",
        "lora.lora_dropout: 0.0 in the file, but --lora_dropout 0.5",
        "lora.use_rslora: false in the file, but --use_rslora true",
        R"(lora.target_modules: "all-linear" in the file, but --lora_target_modules ["q_proj",)",
        R"(lora.modules_to_save: ["wte"] in the file, but --lora_modules_to_save ["lm_head"])"}) {
    CHECK_MESSAGE(error.find(pair) != std::string::npos, pair);
  }
}

TEST_CASE("one word of --lora_target_modules is a regular expression, unless it is a plain name") {
  CHECK(targets({"all-linear"}) == ModuleNames{.pattern = "all-linear"});
  CHECK(targets({"ALL-LINEAR"}) == ModuleNames{.pattern = "all-linear"});
  CHECK(targets({R"(.*\.(q|v)_proj)"}) == ModuleNames{.pattern = R"(.*\.(q|v)_proj)"});
  CHECK(targets({"q_proj"}) == ModuleNames{.names = {"q_proj"}});
  CHECK(targets({"v_proj", "q_proj"}) == ModuleNames{.names = {"q_proj", "v_proj"}});
  CHECK_FALSE(targets({}).is_set());
}

TEST_CASE("flags about adapters need adapters") {
  FlagValues flags;
  flags.lora_r = 4;
  flags.lora_target_modules = {"q_proj"};
  CHECK(error_of("{}", flags) ==
        "test.json: --lora_r, --lora_target_modules: no effect without adapters: add --use_peft, "
        "or the section \"lora\": {} to the file");
  FlagValues off;
  off.use_rslora = false;
  CHECK(error_of("{}", off) == "");
  flags = with_peft();
  flags.lora_r = 0;
  CHECK(error_of("{}", flags) == "test.json: --lora_r: expected 1..1000000, found 0");
}

TEST_CASE("layers are chosen of modules that are named") {
  CHECK(error_of(lora(R"("layers_pattern": "h")")) ==
        "test.json: lora.layers_pattern: has no effect alone: give lora.layers_to_transform, or "
        "leave it out");
  CHECK(error_of(lora(R"("layers_to_transform": 1, "target_modules": "all-linear")")) ==
        "test.json: lora.layers_to_transform: needs names, but lora.target_modules is "
        "\"all-linear\", which selects layers by itself: write a list of names, or leave "
        "lora.layers_to_transform out");
  FlagValues flags;
  flags.lora_target_modules = {".*"};
  CHECK(error_of(lora(R"("layers_to_transform": 1)"), flags)
            .find("but --lora_target_modules is \".*\"") != std::string::npos);
  CHECK(error_of(lora(R"("layers_to_transform": 1)")) == "");
}

TEST_CASE("target_modules that select nothing, or all and more, are refused") {
  for (const char* none : {"[]", "\"\""}) {
    CHECK(error_of(lora(fmt::format(R"("target_modules": {})", none))) ==
          "test.json: lora.target_modules: selects no module: name some, or leave it out for the "
          "usual ones");
  }
  CHECK(error_of(lora(R"("target_modules": ["all-linear"])")) ==
        "test.json: lora.target_modules: all-linear is no name in a list: write it alone, as a "
        "string");
  FlagValues flags = with_peft();
  flags.lora_target_modules = {"all-linear", "q_proj"};
  CHECK(error_of("{}", flags) ==
        "test.json: --lora_target_modules: all-linear is no name in a list: write it alone");
}

TEST_CASE("weights are kept in NF4 if a file or --load_in_4bit says so") {
  CHECK_FALSE(config_of("{}").quantization.nf4_weights);
  const auto quantization = [](const std::string& keys) {
    return fmt::format(R"({{"quantization": {{{}}}}})", keys);
  };
  CHECK_FALSE(config_of(quantization("")).quantization.nf4_weights);
  const std::string nf4 = R"("load_in_4bit": true, "bnb_4bit_quant_type": "nf4")";
  CHECK(config_of(quantization(nf4)).quantization.nf4_weights);
  CHECK_FALSE(config_of(quantization(nf4)).quantization.nested_scales);
  CHECK(config_of(quantization(nf4 + R"(, "bnb_4bit_use_double_quant": true)"))
            .quantization.nested_scales);
  FlagValues flags;
  flags.load_in_4bit = true;
  flags.use_bnb_nested_quant = true;
  const Resolved resolved = resolve_text("{}", flags);
  CHECK(resolved.config.quantization.nf4_weights);
  CHECK(resolved.config.quantization.nested_scales);
  CHECK(resolved.origins.at("quantization.load_in_4bit") == "--load_in_4bit");
  CHECK(config_of(quantization(R"("load_in_4bit": "auto")"), flags).quantization.nf4_weights);
}

TEST_CASE("of what is no NF4 the message says what to write") {
  const auto quantization = [](const std::string& keys) {
    return fmt::format(R"({{"quantization": {{{}}}}})", keys);
  };
  CHECK(error_of(quantization(R"("load_in_4bit": true)")) ==
        "test.json: quantization.bnb_4bit_quant_type: is not given, and its default fp4 is not "
        "supported: add \"bnb_4bit_quant_type\": \"nf4\"");
  CHECK(error_of(quantization(R"("load_in_4bit": true, "bnb_4bit_quant_type": "fp4")"))
            .find("quantization.bnb_4bit_quant_type") != std::string::npos);
  CHECK(error_of(quantization(R"("load_in_8bit": true)")).find("quantization.load_in_8bit") !=
        std::string::npos);
  CHECK(error_of(quantization(R"("bnb_4bit_use_double_quant": true)")) ==
        "test.json: quantization.bnb_4bit_use_double_quant: no effect without weights in 4 bits: "
        "add --load_in_4bit, or quantization.load_in_4bit to the file");
  FlagValues flags;
  flags.use_bnb_nested_quant = true;
  CHECK(error_of("{}", flags).find("--use_bnb_nested_quant: no effect") != std::string::npos);
  flags.load_in_4bit = true;
  flags.bnb_4bit_quant_type = "fp4";
  CHECK(error_of("{}", flags) == "test.json: --bnb_4bit_quant_type fp4: weights in 4 bits are nf4");
  flags.bnb_4bit_quant_type = "";
  CHECK(
      error_of(quantization(R"("load_in_4bit": true, "bnb_4bit_quant_type": "nf4",
                                 "bnb_4bit_use_double_quant": false)"),
               flags)
          .find("bnb_4bit_use_double_quant: false in the file, but --use_bnb_nested_quant true") !=
      std::string::npos);
  // Every key that transformers writes.
  CHECK(error_of(quantization(R"("quant_method": "bitsandbytes", "load_in_4bit": true,
      "load_in_8bit": false, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true,
      "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8",
      "llm_int8_skip_modules": null, "llm_int8_threshold": 6.0,
      "llm_int8_enable_fp32_cpu_offload": false, "llm_int8_has_fp16_weight": false)")) == "");
}

TEST_CASE("check-config lists the keys of adapters if there are some") {
  const auto inspected = [](const std::string& text) {
    const Inspection found = inspect(parse_text(text, "x"), {});
    std::vector<std::string> lines;
    for (const auto* list : {&found.given, &found.by_default}) {
      for (const KeyReport& key : *list) {
        if (key.path.starts_with("lora"))
          lines.push_back(fmt::format("{} {} {}", key.path, key.state, key.value));
      }
    }
    return lines;
  };
  CHECK(inspected("{}").empty());
  const auto lines = inspected(lora(R"("r": 4, "auto_mapping": {"parent_library": "x"},
      "rank_pattern": {"q": 0}, "use_dora": false)"));
  for (const char* line :
       {"lora.r honoured 4", "lora.auto_mapping no effect {}", "lora.rank_pattern refused",
        "lora.use_dora off false", "lora.lora_alpha honoured 8.0"}) {
    CAPTURE(std::string(line));
    CHECK(contains(lines, line));
  }
}

}  // namespace zeroth::configs::lora_test
