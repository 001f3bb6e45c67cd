#include "base/json/json.h"

#include <algorithm>
#include <cctype>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"

namespace zeroth {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

// JsonParseFailure describes where and why nlohmann's parser stops.
struct JsonParseFailure {
  size_t position = 0;  // bytes read, with the offending one
  std::string token;    // last token read; exact for texts and numbers
  int id = 0;
  std::string reason;  // nlohmann's text, to distinguish kinds; not for users

  bool is(std::string_view kind) const { return reason.find(kind) != reason.npos; }
};

// JsonTree is a SAX handler that follows nlohmann's parser through a text and builds the tree. It
// knows the path of the current value, and needs linear time for ordered objects too.
template <typename Json>
class JsonTree {
 public:
  bool null() { return value(nullptr); }
  bool boolean(bool flag) { return value(flag); }
  bool number_integer(int64_t number) { return value(number); }
  bool number_unsigned(uint64_t number) { return value(number); }
  bool number_float(double number, const std::string& token) {
    const bool is_integer = token.find_first_of(".eE") == std::string::npos;
    if (is_integer && large_integer.empty()) large_integer = path() + ": " + shortened(token);
    return value(number);
  }
  bool string(std::string& text) { return value(std::move(text)); }
  bool binary(typename Json::binary_t&) { return false; }  // JSON has none
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    Level& level = levels_.back();
    level.key = std::move(name);
    level.awaits_value = true;
    if (has_key(level) && ++duplicate_keys.count <= kMaxErrors)
      duplicate_keys.paths.push_back(path());
    return true;
  }

  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& reason) {
    failure = {position, token, reason.id, reason.what()};
    return false;
  }

  // Returns the parser's current path, "zero_optimization.stage" or "merges[12]", shortened if it
  // is long.
  std::string path() const {
    std::string text;
    for (const Level& level : levels_) {
      if (level.container->is_array()) {
        text += "[" + std::to_string(level.index) + "]";
      } else if (!level.key.empty()) {
        text += (text.empty() ? "" : ".") + shortened(level.key);
      }
    }
    return shortened(text, kMaxPathBytes);
  }

  bool is_within() const { return !levels_.empty(); }
  bool is_in_array() const { return is_within() && levels_.back().container->is_array(); }
  bool awaits_value() const { return is_within() && levels_.back().awaits_value; }

  Json root;
  DuplicateKeys duplicate_keys;
  std::string large_integer;  // path and digits of the first one beyond 64 bits
  JsonParseFailure failure;

 private:
  static constexpr size_t kMaxPathBytes = 120;
  static constexpr bool kOrdered = std::is_same_v<Json, nlohmann::ordered_json>;

  struct Level {
    Json* container;
    size_t index = 0;                                        // in an array: of the current value
    std::string key = {};                                    // in an object: of the current member
    bool awaits_value = false;                               // in an object: its key was read
    std::unordered_map<std::string, size_t> positions = {};  // in an ordered object, by key
  };

  bool has_key(const Level& level) const {
    if constexpr (kOrdered) return level.positions.contains(level.key);
    return level.container->contains(level.key);
  }

  // Stores the value and returns where it is. The reference is valid while the container is open,
  // because only the innermost container grows.
  Json& put(Json value) {
    if (levels_.empty()) return root = std::move(value);
    Level& level = levels_.back();
    if (level.container->is_array()) {
      level.container->push_back(std::move(value));
      return level.container->back();
    }
    level.awaits_value = false;
    auto& members = level.container->template get_ref<typename Json::object_t&>();
    if constexpr (kOrdered) {
      const auto [it, added] = level.positions.try_emplace(level.key, members.size());
      if (!added) return members.begin()[it->second].second = std::move(value);
      members.emplace_back(level.key, std::move(value));
      return members.back().second;
    } else {
      return members.insert_or_assign(level.key, std::move(value)).first->second;
    }
  }

  template <typename Value>
  bool value(Value&& content) {
    put(Json(std::forward<Value>(content)));
    return finish_value();
  }

  bool open(Json container) {
    Json& inserted = put(std::move(container));
    levels_.push_back({.container = &inserted});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return finish_value();
  }

  bool finish_value() {
    if (is_within()) ++levels_.back().index;
    return true;
  }

  std::vector<Level> levels_;
};

// Throws if the text exceeds the limits. Runs before parsing, so that no tree is built from such a
// text.
void check_limits(std::string_view text, const JsonSource& source) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    throw_json_error(text, 0, source, "not JSON: the text is UTF-16, expected UTF-8");
  }
  if (text.size() > source.limits.bytes) {
    throw Error("{} has {} bytes of JSON; the limit is {}", source.name, text.size(),
                source.limits.bytes);
  }
  size_t depth = 0;
  size_t values = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char byte = text[i];
    if (in_string) {
      if (byte == '\\') ++i;
      if (byte == '"') in_string = false;
    } else if (byte == '"') {
      in_string = true;
    } else if (byte == '\0') {  // the parser treats it as the end
      throw_json_error(text, i, source, "not JSON: a NUL byte");
    } else if (byte == '}' || byte == ']') {
      depth -= depth > 0 ? 1 : 0;
    } else if (byte == '{' || byte == '[' || byte == ',') {
      if (byte != ',' && ++depth > kMaxJsonDepth) {
        throw_json_error(text, i, source,
                         fmt::format("nested deeper than {} levels", kMaxJsonDepth));
      }
      if (++values > source.limits.values) {
        throw_json_error(text, i, source,
                         fmt::format("more than {} values in one JSON text", source.limits.values));
      }
    }
  }
}

bool is_word(char byte) {
  return std::isalnum(static_cast<uint8_t>(byte)) != 0 || byte == '_' || (byte & 0x80) != 0;
}

// Returns the token at which the parser stopped. It reports texts and numbers with their length;
// any other token is found by the position.
std::string_view offending_token(std::string_view text, const JsonParseFailure& failure) {
  size_t end = std::min(failure.position, text.size());
  if (failure.is("unexpected string literal") || failure.is("unexpected number literal")) {
    const size_t size = std::min(end, failure.token.size());
    return text.substr(end - size, size);
  }
  size_t begin = end - std::min<size_t>(end, 1);
  while (begin > 0 && is_word(text[begin]) && is_word(text[begin - 1])) --begin;
  while (end < text.size() && is_word(text[begin]) && is_word(text[end])) ++end;
  return text.substr(begin, end - begin);
}

// Returns a description of the tokens that may follow `before`.
template <typename Json>
std::string expected(std::string_view before, const JsonTree<Json>& tree) {
  const size_t last = before.find_last_not_of(kBlank);
  const char previous = last == std::string_view::npos ? '\0' : before[last];
  if (previous == '{') return "a key or '}'";
  if (previous == '[') return "a value or ']'";
  if (previous == ':') return "a value";
  if (!tree.is_within()) return tree.root.is_null() ? "a value" : "the end";
  if (tree.is_in_array()) return previous == ',' ? "a value" : "',' or ']'";
  if (previous == ',') return "a key";
  return tree.awaits_value() ? "':'" : "',' or '}'";
}

std::string string_failure(const JsonParseFailure& failure, char byte) {
  if (failure.is("UTF-8")) return "bytes that are not UTF-8";
  if (failure.is("surrogate")) return "half of a surrogate pair";
  if (failure.is("control character")) {
    return fmt::format("a control byte; write it as \\u{:04x}", static_cast<uint8_t>(byte));
  }
  return "an unknown escape";
}

template <typename Json>
std::string describe_failure(std::string_view text, const JsonTree<Json>& tree) {
  constexpr int kOutOfRange = 406;
  const JsonParseFailure& failure = tree.failure;
  if (failure.id == kOutOfRange) {
    return fmt::format("the number {} is out of range", shortened(failure.token));
  }
  if (failure.position > text.size()) {
    return failure.is("invalid string")
               ? "not JSON: a string without its closing quote"
               : fmt::format("not JSON: it ends here, expected {}", expected(text, tree));
  }
  if (failure.is("invalid string")) {
    return "not JSON: " + string_failure(failure, text[failure.position - 1]);
  }
  if (failure.is("invalid number")) {
    return fmt::format("not JSON: '{}' is not a number", shortened(failure.token));
  }
  const std::string_view token = offending_token(text, failure);
  const auto before = text.substr(0, static_cast<size_t>(token.data() - text.data()));
  return fmt::format("not JSON: unexpected '{}', expected {}", shortened(token),
                     expected(before, tree));
}

template <typename Json>
JsonTree<Json> parse(std::string_view text, const JsonSource& source) {
  check_limits(text, source);
  JsonTree<Json> tree;
  if (Json::sax_parse(text.begin(), text.end(), &tree)) {
    if (!source.exact_integers || tree.large_integer.empty()) return tree;
    throw Error("{}:{}: {} does not fit 64 bits: write it as a string", source.name, source.line,
                tree.large_integer);
  }
  const std::string path = tree.path();
  const size_t offset = std::min(tree.failure.position, text.size());
  throw_json_error(text, offset == 0 ? 0 : offset - 1, source,
                   (path.empty() ? "" : path + ": ") + describe_failure(text, tree));
}

std::string quoted_text(std::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) text = text.substr(0, max_bytes);
  using Handler = nlohmann::json::error_handler_t;
  // Drops a character that the truncation split.
  return printable(nlohmann::json(text).dump(-1, ' ', false, Handler::ignore));
}

// Appends the value and stops once `out` has more than `max_bytes` bytes.
template <typename Json>
void append(const Json& value, size_t max_bytes, std::string& out) {
  if (out.size() > max_bytes) return;
  if (value.is_string()) {
    out += quoted_text(value.template get_ref<const std::string&>(), max_bytes);
  } else if (!value.is_structured()) {
    out += value.dump();
  } else {
    out += value.is_array() ? "[" : "{";
    const char* separator = "";
    for (const auto& [key, item] : value.items()) {
      if (out.size() > max_bytes) return;
      out += std::exchange(separator, ",");
      if (value.is_object()) out += quoted_text(key, max_bytes) + ":";
      append(item, max_bytes, out);
    }
    out += value.is_array() ? "]" : "}";
  }
}

template <typename Json>
std::string quote(const Json& value, size_t max_bytes) {
  std::string out;
  append(value, max_bytes, out);
  if (out.size() <= max_bytes) return out;
  size_t end = max_bytes;
  while (end > 0 && (out[end] & 0xC0) == 0x80) --end;  // do not split a character
  return out.substr(0, end) + "...";
}

void check_duplicate_keys(const DuplicateKeys& keys, const JsonSource& source) {
  if (source.duplicate_keys != DuplicateKeyPolicy::kReject || keys.count == 0) return;
  throw Error("{}:{}: duplicate key {} in one object", source.name, source.line,
              keys.paths.front());
}

}  // namespace

void throw_json_error(std::string_view text, size_t offset, const JsonSource& source,
                      const std::string& reason) {
  const std::string_view before = text.substr(0, offset);
  const int64_t line = source.line + std::count(before.begin(), before.end(), '\n');
  const size_t column = offset - (before.rfind('\n') + 1) + 1;
  throw Error("{}:{}:{}: {}", source.name, line, column, reason);
}

nlohmann::json parse_json(std::string_view text, const JsonSource& source) {
  auto tree = parse<nlohmann::json>(text, source);
  check_duplicate_keys(tree.duplicate_keys, source);
  return std::move(tree.root);
}

nlohmann::json read_json(const JsonSource& source) {
  return parse_json(read_file(source.name, source.limits.bytes), source);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const JsonSource& source,
                                          DuplicateKeys* duplicate_keys) {
  auto tree = parse<nlohmann::ordered_json>(text, source);
  check_duplicate_keys(tree.duplicate_keys, source);
  if (duplicate_keys != nullptr) *duplicate_keys = std::move(tree.duplicate_keys);
  return std::move(tree.root);
}

nlohmann::ordered_json parse_trusted_json(std::string_view text) {
  auto tree = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  ZEROTH_CHECK(!tree.is_discarded(), "not JSON: {}", shortened(text));
  return tree;
}

std::vector<FlatValue> flat_values(const nlohmann::ordered_json& json, const std::string& path) {
  std::vector<FlatValue> values;
  for (const auto& [key, value] : json.items()) {
    const std::string inner = path.empty() ? key : path + "." + key;
    if (value.is_object()) {
      for (FlatValue& nested : flat_values(value, inner)) values.push_back(std::move(nested));
    } else {
      values.push_back({inner, value.is_string() ? value.get<std::string>() : to_line(value)});
    }
  }
  return values;
}

std::string quoted(const nlohmann::json& value, size_t max_bytes) {
  return quote(value, max_bytes);
}

std::string quoted(const nlohmann::ordered_json& value, size_t max_bytes) {
  return quote(value, max_bytes);
}

}  // namespace zeroth
