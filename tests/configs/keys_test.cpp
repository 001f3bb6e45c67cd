#include "configs/schema/keys.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "configs/schema/check.h"
#include "tests/configs/support.h"

namespace zeroth::configs::keys_test {
namespace {

const char* state_word(KeyState state) {
  switch (state) {
    case KeyState::kHonored:
      return "honoured";
    case KeyState::kNoEffect:
      return "no effect";
    case KeyState::kRefused:
      return "refused";
  }
  return "";
}

std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped.empty() ? "" : fmt::format("`{}`", escaped);
}

const char* alias_word(Alias::Kind kind) {
  switch (kind) {
    case Alias::Kind::kSame:
      return "";
    case Alias::Kind::kDeprecated:
      return "old: one line says so";
    case Alias::Kind::kCpuDevice:
      return "old: true means `{\"device\": \"cpu\"}`; one line says so";
  }
  return "";
}

// The row of docs/config.md that a row of the table asks for.
std::string doc_row(const ConfigKey& key) {
  const bool honoured_section =
      key.field.type == KeyType::kSection && key.state == KeyState::kHonored;
  std::string text(key.text);
  if (!key.allowed_keys.empty()) text += fmt::format("; inside: `{}`", key.allowed_keys);
  return fmt::format("| `{}` | {} | {} | {} | {} | {} |", key.path,
                     honoured_section ? "section" : state_word(key.state), cell(key.default_value),
                     cell(key.accepts), key.auto_value, text);
}

std::set<std::string> rows_of(const std::string& page, const std::string& start) {
  std::set<std::string> rows;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(start) && !line.starts_with("| `--")) rows.insert(line);  // of a flag
  }
  return rows;
}

}  // namespace

TEST_CASE("every path of the table stands once, below a section of the table") {
  std::set<std::string_view> seen;
  for (const ConfigKey& key : keys()) {
    CAPTURE(key.path);
    CHECK(seen.insert(key.path).second);
    CHECK_FALSE(key.text.empty());
    const size_t dot = key.path.rfind('.');
    if (dot == std::string_view::npos) continue;
    const ConfigKey* parent = find_key(key.path.substr(0, dot));
    REQUIRE(parent != nullptr);
    CHECK(parent->field.type == KeyType::kSection);
  }
  for (const Alias& alias : aliases()) {
    CAPTURE(alias.other);
    CHECK(find_key(alias.path) != nullptr);
    CHECK(find_key(alias.other) == nullptr);
  }
}

TEST_CASE("docs/config.md has the rows of the table and no others") {
  const std::string page = read_source("docs/config.md");
  std::set<std::string> expected;
  for (const ConfigKey& key : keys()) expected.insert(doc_row(key));
  std::set<std::string> other_names;
  for (const Alias& alias : aliases()) {
    other_names.insert(
        fmt::format("| as `{}` | `{}` | {} |", alias.other, alias.path, alias_word(alias.kind)));
  }
  const auto missing = [](const std::set<std::string>& from, const std::set<std::string>& in) {
    std::vector<std::string> rows;
    std::set_difference(from.begin(), from.end(), in.begin(), in.end(), std::back_inserter(rows));
    return fmt::format("{}", fmt::join(rows, "\n"));
  };
  CHECK(missing(expected, rows_of(page, "| `")) == "");
  CHECK(missing(rows_of(page, "| `"), expected) == "");
  CHECK(missing(other_names, rows_of(page, "| as ")) == "");
  CHECK(missing(rows_of(page, "| as "), other_names) == "");
}

TEST_CASE("every field of the configuration structs has a comment above it") {
  std::istringstream lines(read_source("configs/config.h") + read_source("configs/lora_config.h") +
                           read_source("configs/offload_config.h") +
                           read_source("configs/report_config.h") +
                           read_source("configs/update_config.h"));
  std::string before;
  int fields = 0;
  for (std::string line; std::getline(lines, line); before = line) {
    const bool in_struct = line.starts_with("  ") && !line.starts_with("   ");
    const bool field = in_struct && line.ends_with(";") && line.find(" = ") != std::string::npos;
    if (!field || line.find(" operator") != std::string::npos) continue;
    CAPTURE(line);
    ++fields;
    const bool commented = before.find("//") != std::string::npos;
    CHECK((commented || before.ends_with(";")));  // neighbours may share one
  }
  CHECK(fields > 80);
}

TEST_CASE("ranges are spelled as the documentation shows them") {
  CHECK(in_range(-1e9, ""));
  CHECK_FALSE(in_range(std::numeric_limits<double>::infinity(), ""));
  CHECK_FALSE(in_range(std::numeric_limits<double>::quiet_NaN(), ">= 0"));
  CHECK(in_range(0, ">= 0"));
  CHECK_FALSE(in_range(-1, ">= 0"));
  CHECK(in_range(1, "> 0"));
  CHECK_FALSE(in_range(0, "> 0"));
  CHECK(in_range(3, "0..3"));
  CHECK_FALSE(in_range(4, "0..3"));
  CHECK(in_range(0, "[0, 1)"));
  CHECK_FALSE(in_range(1, "[0, 1)"));
}

TEST_CASE("names of a section hold its keys and their other spellings") {
  const auto names = names_in("bf16");
  CHECK(std::find(names.begin(), names.end(), "enabled") != names.end());
  const auto top = names_in("");
  CHECK(std::find(top.begin(), top.end(), "bfloat16") != top.end());
  CHECK(std::find(top.begin(), top.end(), "enabled") == top.end());
}

TEST_CASE("every other spelling reaches its key, and an old one is said") {
  for (const Alias& alias : aliases()) {
    if (alias.kind == Alias::Kind::kCpuDevice) continue;
    CAPTURE(alias.other);
    const ConfigKey* key = find_key(alias.path);
    REQUIRE(key != nullptr);
    const std::string value =
        key->field.type == KeyType::kSection ? "{}" : std::string(key->default_value);
    const std::string text = nested(std::string(alias.other), value);
    CHECK(complaints_of(text) == "");
    const bool old = alias.kind == Alias::Kind::kDeprecated;
    CHECK(has_warning(resolve_text(text),
                      fmt::format("{} is the old name of {}", alias.other, alias.path)) == old);
  }
}

TEST_CASE("cpu_offload means offload_optimizer on the CPU, with a warning, and not both") {
  const auto section = [](const char* allowed_keys) {
    return fmt::format(R"({{"zero_optimization": {{"stage": 3, {}}}}})", allowed_keys);
  };
  const Resolved old = resolve_text(section(R"("cpu_offload": true)"));
  CHECK(old.config.zero.offload_optimizer.device == OffloadDevice::kCpu);
  CHECK(old.config.zero.offload_param.device == OffloadDevice::kNone);
  CHECK(warnings_of(old) ==
        std::vector<std::string>{"zero_optimization.cpu_offload true is the old form of "
                                 "zero_optimization.offload_optimizer {\"device\":\"cpu\"}"});
  for (const char* name : {"cpu_offload_param", "cpu_offload_params"}) {
    const Resolved param = resolve_text(section(fmt::format("\"{}\": true", name).c_str()));
    CHECK(param.config.zero.offload_param.device == OffloadDevice::kCpu);
    CHECK(param.config.zero.offload_optimizer.device == OffloadDevice::kNone);
    CHECK(warnings_of(param).size() == 1);
  }
  for (const char* off : {"false", "null"}) {
    CHECK(complaints_of(section(fmt::format("\"cpu_offload\": {}", off).c_str())) == "");
  }
  CHECK(complaints_of(section(R"("cpu_offload": true, "offload_optimizer": {"device": "none"})"))
            .find("zero_optimization.offload_optimizer: duplicate key, also in the file as "
                  "zero_optimization.cpu_offload: keep one") != std::string::npos);
  CHECK(complaints_of(section(R"("cpu_offload": "yes")")) ==
        "zero_optimization.cpu_offload: expected true or false, found the string \"yes\"");
}

TEST_CASE("aio within zero_optimization, as in Trainer's guide, is the section beside it") {
  const Resolved old = resolve_text(nested("zero_optimization.aio", R"({"queue_depth": 7,
      "thread_count": 3})"));
  CHECK(old.config.aio.queue_depth == 7);
  CHECK(old.config.aio.threads == 3);
  CHECK(has_warning(old, "zero_optimization.aio is the old name of aio"));
  CHECK(complaints_of(R"({"aio": {}, "zero_optimization": {"aio": {}}})") ==
        "zero_optimization.aio: duplicate key, also in the file as aio: keep one");
  CHECK(complaints_of(nested("zero_optimization.aio.queue_dept", "1")) ==
        "zero_optimization.aio.queue_dept: unknown key; did you mean aio.queue_depth?");
}

TEST_CASE("the threads of aio have an old name") {
  const Resolved old = resolve_text(nested("aio.thread_count", "3"));
  CHECK(old.config.aio.threads == 3);
  CHECK(has_warning(old, "aio.thread_count is the old name of aio.intra_op_parallelism"));
  CHECK(complaints_of(R"({"aio": {"thread_count": 3, "intra_op_parallelism": 3}})") ==
        "aio.intra_op_parallelism: duplicate key, also in the file as aio.thread_count: keep one");
}

TEST_CASE("prefixed and plain names of stage 3 are the same keys") {
  for (const char* prefix : {"", "stage3_"}) {
    const ZeroConfig zero = config_of(fmt::format(R"({{"zero_optimization": {{"stage": 3,
            "{0}prefetch_bucket_size": 7, "{0}param_persistence_threshold": 8,
            "{0}max_live_parameters": 9, "{0}gather_16bit_weights_on_model_save": true}}}})",
                                                  prefix))
                                .zero;
    CHECK(zero.prefetch_bucket_elements == 7);
    CHECK(zero.param_persistence_threshold_elements == 8);
    CHECK(zero.max_live_elements == 9);
    CHECK(zero.gather_16bit_weights_on_model_save);
  }
}

}  // namespace zeroth::configs::keys_test
