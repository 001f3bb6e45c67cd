#include "model/hf/module_pattern.h"

#include <doctest/doctest.h>

#include <iterator>

#include "base/error.h"
#include "model/hf/lora_plan.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model::module_pattern_test {
namespace {

using configs::LoraConfig;
using Names = std::vector<std::string>;

constexpr const char* kPath = "model.layers.0.mlp.up_proj";

bool full_match(const std::string& expression, std::string_view path = kPath) {
  return ModulePattern("lora.target_modules", expression).full_match(path);
}

std::string refusal(const std::string& expression) {
  return message_of<Error>([&] { ModulePattern("lora.target_modules", expression); });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

LoraConfig targets(const Names& names) {
  LoraConfig config;
  config.target_modules.names = names;
  return config;
}

LoraConfig matching(const std::string& pattern) {
  LoraConfig config;
  config.target_modules.pattern = pattern;
  return config;
}

// A row of REGEX_TEST_CASES of peft's tests/test_tuners_utils.py.
struct Row {
  const char* path;
  LoraConfig config;
  bool expected;
};

Row row(const char* path, LoraConfig config, bool expected) {
  return {path, std::move(config), expected};
}

Row row(const char* path, const Names& names, const std::vector<int64_t>& layers,
        const Names& layers_pattern, bool expected) {
  LoraConfig config = targets(names);
  config.layers_to_transform = layers;
  config.layers_pattern = layers_pattern;
  return {path, config, expected};
}

}  // namespace

TEST_CASE("a pattern matches full paths, as re.fullmatch") {
  CHECK(full_match(".*up_proj"));
  CHECK(full_match(".*(up|down)_proj"));
  CHECK(full_match(R"(model\.layers\.\d+\.mlp\.up_proj)"));
  CHECK(full_match("up_proj|model.*"));
  CHECK(full_match("^model.*proj$"));
  CHECK_FALSE(full_match("up_proj"));
  CHECK_FALSE(full_match("model"));
  CHECK_FALSE(full_match("MODEL.*"));
  CHECK(full_match("(?i)MODEL.*"));
  CHECK(full_match("model|model.*"));  // the first alternative alone is no full match
}

TEST_CASE("syntax of Python keeps its meaning") {
  CHECK(full_match(R"((?P<name>model).*(?!(?P=name)).*\Z)"));
  CHECK(full_match(R"((?:model)\.layers\.(?=0)0\..*(?<=_)proj)"));
  CHECK(full_match("a{,2}b", "aab"));
  CHECK(full_match("a{,}b", "aaab"));
  CHECK_FALSE(full_match("a{,2}b", "aaab"));
  CHECK(full_match("a{,x}", "a{,x}"));
  CHECK(full_match(R"(\x61b)", "ab"));
  CHECK(full_match("[]a]+", "a]a"));
  CHECK(full_match("[^]a]", "b"));
  CHECK(full_match(R"([\]\d]+)", "]1"));
}

TEST_CASE("syntax that Python does not have is refused by name") {
  for (const char* expression : {R"(\Qa.b\E)", R"(\Kmodel)", R"(\p{L})", R"(\R)", R"(\h)",
                                 R"(\u0061)", R"(\C)", R"(\x{61})"}) {
    CHECK_MESSAGE(
        has(refusal(expression), std::string(expression).substr(0, 2) + " is not supported"),
        expression);
  }
  for (const char* expression :
       {"(?R)", "(?1)", "(?<name>a)", "(?'name'a)", "(?|a|b)", "(?&name)", "(?P>name)", "(?C1)",
        "(?x)a b", "a(?i)b", "(?#comment)", "(?(1)a)"}) {
    CHECK_MESSAGE(has(refusal(expression), "is not supported"), expression);
  }
  CHECK(has(refusal("(*LIMIT_MATCH=99999999)a"), "'(*' is invalid"));
  CHECK(has(refusal("[[:alpha:]]"), "'[:' in a character class is not supported"));
}

TEST_CASE("an invalid pattern is an error with the key, the pattern and the place") {
  const std::string message = refusal("model.(layers");
  CHECK(
      message.starts_with("lora.target_modules: regular expression 'model.(layers' is invalid: "));
  CHECK(has(message, "at byte 13"));
  CHECK(has(refusal("a\\"), "it ends in a backslash"));
  CHECK(has(refusal("*"), "at byte 0"));
  CHECK(has(refusal("[a"), "is invalid"));
  CHECK(has(refusal("\xff"), "is invalid"));
  CHECK(has(refusal(std::string(10'001, 'a')), "too long: at most 10000 bytes"));
  CHECK(has(refusal("(((a{1000}){1000}){1000})"), "is invalid"));
  CHECK(has(refusal(std::string(5'000, '(')), "is invalid"));
}

TEST_CASE("a pattern that takes too many steps is an error that names it") {
  const ModulePattern hostile("lora.rank_pattern", "(a|aa)+");
  const std::string message =
      message_of<Error>([&] { hostile.full_match(std::string(40, 'a') + "c"); });
  CHECK(
      message.starts_with("lora.rank_pattern: regular expression '(a|aa)+' takes too many steps"));
}

TEST_CASE("the number of a layer is the text of a group") {
  const ModulePattern layer("lora.layers_pattern", "layers", R"((?:^|.*?\.))",
                            R"(\.(?P<idx>\d+)\.)");
  CHECK(layer.match_index(kPath) == "0");
  CHECK_FALSE(layer.match_index("model.layers.mlp"));
  const ModulePattern unset("lora.layers_pattern", "model|x", {}, R"(\.(?P<idx>\d+)\.)");
  CHECK(unset.match_index(kPath) == "");
}

TEST_CASE("long lists of names become the shortest ends that select the same modules") {
  std::vector<std::string> names, paths = {"lm_head", "model.norm", "model.vision.q_proj"};
  for (int layer = 0; layer < 12; ++layer) {
    for (const char* name : {"attn.q_proj", "mlp.up_proj"})
      names.push_back("model.layers." + std::to_string(layer) + "." + name);
  }
  paths.insert(paths.end(), names.begin(), names.end());
  CHECK(shortest_ends(names, paths) == std::vector<std::string>{"attn.q_proj", "up_proj"});
  paths.push_back("model.layers.0.other.mlp.up_proj");
  paths.push_back("model.layers.0.attn.q_proj.inner");
  const auto ends = shortest_ends(names, paths);
  CHECK(ends.size() == 13);  // "attn.q_proj", and "0.mlp.up_proj" ...
  CHECK(ends.front() == "0.mlp.up_proj");
  CHECK(shortest_ends({"a"}, {"a", "b"}) == std::vector<std::string>{"a"});
}

TEST_CASE("modules match as in peft") {
  const char* const kQuery = "transformer.h.1.attn.attention.q_proj";
  const Row rows[] = {
      row("", Names{}, {}, {}, false),
      row("", {"foo"}, {}, {}, false),
      row("foo", Names{}, {}, {}, false),
      row("foo", {"foo"}, {}, {}, true),
      row("foo", {"bar"}, {}, {}, false),
      row("foo", {"foo", "bar"}, {}, {}, true),
      row("foo", matching("foo"), true),
      row("foo", matching(".*oo"), true),
      row("foo", matching("fo.*"), true),
      row("foo", matching(".*bar.*"), false),
      row("foobar", matching(".*oba.*"), true),
      row("foo.bar.1.baz", {"baz"}, {1}, {"bar"}, true),
      row("foo.bar.1.baz", {"baz"}, {0}, {"bar"}, false),
      row("foo.bar.1.baz", {"baz"}, {2}, {"bar"}, false),
      row("foo.bar.10.baz", {"baz"}, {0}, {"bar"}, false),
      row("foo.bar.10.baz", {"baz"}, {1}, {"bar"}, false),
      row("foo.bar.1.baz", {"baz"}, {0, 1, 2}, {"bar"}, true),
      row("foo.bar.1.baz", {"baz", "spam"}, {1}, {"bar"}, true),
      row("foo.bar.1.baz", {"baz", "spam"}, {0, 1, 2}, {"bar"}, true),
      // The forms [], "" and null of an empty layers_pattern are equal here.
      row("foo.whatever.1.baz", {"baz"}, {1}, {}, true),
      row("foo.whatever.1.baz", {"baz"}, {0}, {}, false),
      row("foo.whatever.1.baz", {"baz"}, {1}, {}, true),
      row("foo.whatever.1.baz", {"baz"}, {0}, {}, false),
      row("foo.whatever.1.baz", {"baz"}, {1}, {}, true),
      row("foo.whatever.1.baz", {"baz"}, {0}, {}, false),
      row("transformer.h.1.attn.attention.q_proj.foo", {"q_proj"}, {}, {}, false),
      row(kQuery, Names{}, {}, {}, false),
      row(kQuery, {"q_proj"}, {}, {}, true),
      row(kQuery, {"q_proj", "v_proj"}, {}, {}, true),
      row("transformer.h.1.attn.attention.resid_dropout", {"q_proj", "v_proj"}, {}, {}, false),
      row(kQuery, {"q_proj"}, {1}, {"h"}, true),
      row(kQuery, {"q_proj"}, {0}, {"h"}, false),
      row(kQuery, {"q_proj"}, {2}, {"h"}, false),
      row(kQuery, {"q_proj"}, {0, 1, 2}, {"h"}, true),
      row(kQuery, {"q_proj", "v_proj"}, {0, 1, 2}, {"h"}, true),
      row("foo.bar.q_proj", {"q_proj"}, {}, {}, true),
      row("foo.bar.1.baz", {"baz"}, {1}, {"foo"}, false),
      row("foo.bar.1.baz", {"baz"}, {1}, {"baz"}, false),
      // Since peft 0.21 the list of layers may begin the path: these two were false before.
      row("bar.1.baz", {"baz"}, {1}, {"bar"}, true),
      row("blocks.1.weight", {"weight"}, {1}, {"blocks"}, true),
      row("foo.bar.001.baz", {"baz"}, {1}, {"bar"}, true),
      row("foo.bar.1.spam.2.baz", {"baz"}, {1}, {"bar"}, true),
      row("foo.bar.2.spam.1.baz", {"baz"}, {1}, {"bar"}, false),
      row("blocks.1.bias", {"weight"}, {1}, {"blocks"}, false),
      row("mlp.blocks.1.weight", {"weight"}, {1}, {"blocks"}, true),
      row("mlp.blocks.1.bias", {"weight"}, {1}, {"blocks"}, false),
  };
  CHECK(std::size(rows) == 46);
  for (const Row& one : rows) {
    CAPTURE(&one - rows);
    CHECK(is_lora_target(one.path, one.config) == one.expected);
  }
}

TEST_CASE("excluded modules and modules that are trained in full are no targets") {
  LoraConfig config = targets({"q_proj", "foo.bar.v_proj"});
  config.exclude_modules.names = {"v_proj", "a.q_proj"};
  CHECK(is_lora_target("b.q_proj", config));
  CHECK_FALSE(is_lora_target("foo.a.q_proj", config));
  CHECK_FALSE(is_lora_target("foo.bar.v_proj", config));
  CHECK_FALSE(is_lora_target("foo.my_q_proj", config));
  config.exclude_modules = {".*attn.*", {}};
  CHECK_FALSE(is_lora_target("attn.q_proj", config));
  CHECK(is_lora_target("x.q_proj", config));
  config.exclude_modules = {};
  config.modules_to_save = {"attn"};
  CHECK_FALSE(is_lora_target("h.0.attn.q_proj", config));
  CHECK(is_lora_target("h.0.self_attn.q_proj", config));  // no end after a dot
}

TEST_CASE("layers are counted by the first number, not by that of an expert") {
  for (const Names& pattern : {Names{}, Names{"layers"}, Names{"h", "layers"}}) {
    LoraConfig config = targets({"q_proj", "up_proj", "model.layers.2.self_attn.q_proj"});
    config.layers_to_transform = {1};
    config.layers_pattern = pattern;
    CHECK(is_lora_target("model.layers.1.self_attn.q_proj", config));
    CHECK(is_lora_target("model.layers.1.mlp.experts.0.up_proj", config));
    CHECK(is_lora_target("model.layers.1.mlp.experts.1.up_proj", config));
    CHECK_FALSE(is_lora_target("model.layers.0.self_attn.q_proj", config));
    CHECK_FALSE(is_lora_target("model.layers.2.mlp.experts.1.up_proj", config));
    CHECK(is_lora_target("model.layers.2.self_attn.q_proj", config));  // a full path: any layer
  }
}

}  // namespace zeroth::model::module_pattern_test
