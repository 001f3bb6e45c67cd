// Methods of strings, lists, dicts and loops.
#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "data/chat_template/template_evaluator.h"

namespace zeroth::data::jinja {
namespace {

constexpr uint32_t kString = kind_bits(Kind::kString);
constexpr uint32_t kList = kind_bits(Kind::kList);
constexpr uint32_t kDict = kind_bits(Kind::kDict);
constexpr uint32_t kSequences = kind_bits(Kind::kList, Kind::kTuple, Kind::kRange);
constexpr uint32_t kNumbers = kind_bits(Kind::kInt, Kind::kBool, Kind::kFloat, Kind::kBigInt);

// Throws for the methods whose arguments Markup would escape.
void require_plain(const Call& call) {
  if (call.self.safe) throw TemplateFailure("this method of a safe string is not supported");
}

template <Side kSide>
Value strip_method(const Call& call) {
  if (!call.has_value(0)) return strip(call.arena, call.self, kSide);
  require_plain(call);
  return strip(call.arena, call.self, kSide, call.string(0));
}

template <LetterCase kMode>
Value case_method(const Call& call) {
  return convert_case(call.arena, call.self, kMode);
}

Value split_method(const Call& call) {
  const int64_t max_splits = call.integer(1, -1);
  return new_list(call.arena, call.has_value(0)
                                  ? split(call.arena, call.self, call.string(0), max_splits)
                                  : split_spaces(call.arena, call.self, max_splits));
}

Value rsplit_method(const Call& call) {
  const std::string_view text = call.self.text();
  const std::string_view separator = call.string(0);
  fail_if(separator.empty() || call.integer(1, -1) != 1,
          "'rsplit' into other than two parts is not supported");
  const size_t found = text.rfind(separator);
  if (found == text.npos) return new_list(call.arena, {call.self});
  const size_t end = found + separator.size();
  return new_list(call.arena, {substring(call.arena, call.self, 0, found),
                               substring(call.arena, call.self, end, text.size())});
}

Value partition(const Call& call) {
  const std::vector<Value> parts = split(call.arena, call.self, call.string(0), 1);
  const bool found = parts.size() == 2;
  const Value empty = view_string(call.arena, "");
  return new_tuple(call.arena, {parts[0], found ? call[0] : empty, found ? parts[1] : empty});
}

Value replace_method(const Call& call) {
  require_plain(call);
  (void)call.string(1);
  return replace(call.arena, call.self, call.string(0), call[1], call.integer(2, -1));
}

template <bool kEnd>
Value has_affix(const Call& call) {
  const auto matches = [&](const Value& affix) {
    const std::string_view text = to_text(affix);
    return kEnd ? call.self.text().ends_with(text) : call.self.text().starts_with(text);
  };
  if (!call[0].is(Kind::kTuple)) return Value::of_bool(matches(call[0]));
  const Sequence& options = *call[0].sequence;
  return Value::of_bool(std::any_of(options.begin(), options.end(), matches));
}

template <bool kRight, bool kMust>
Value find_method(const Call& call) {
  call.arena.charge(call.self.string->size / kBytesPerStep);
  const std::string_view text = call.self.text();
  const size_t at = kRight ? text.rfind(call.string(0)) : text.find(call.string(0));
  if (at != std::string_view::npos) {
    const String before{.data = text.data(), .size = static_cast<uint32_t>(at)};
    return Value::of_int(before.length());
  }
  if (kMust) throw TemplateFailure("substring not found");
  return Value::of_int(-1);
}

Value count_in_string(const Call& call) {
  const std::string_view text = call.self.text();
  const std::string_view wanted = call.string(0);
  call.arena.charge(text.size() / kBytesPerStep);
  if (wanted.empty()) return Value::of_int(int64_t{call.self.string->length()} + 1);
  int64_t found = 0;
  for (size_t at = text.find(wanted); at != text.npos; at = text.find(wanted, at + wanted.size())) {
    ++found;
  }
  return Value::of_int(found);
}

Value join_method(const Call& call) {
  require_plain(call);
  TextBuilder out(call.arena);
  bool first = true;
  for (const Value& item : collect(call.arena, call[0])) {
    if (!first) out.append(call.self);
    first = false;
    (void)to_text(item);
    out.append(item);
  }
  return out.build();
}

Value zfill(const Call& call) {
  require_plain(call);
  Arena& arena = call.arena;
  const std::string_view text = call.self.text();
  const size_t sign = text.starts_with('+') || text.starts_with('-') ? 1 : 0;
  TextBuilder out(arena);
  out.append(substring(arena, call.self, 0, sign));
  const int64_t width = std::clamp<int64_t>(call.integer(0, 0), 0, UINT32_MAX);
  out.append_times(view_string(arena, "0"), width - int64_t{call.self.string->length()});
  out.append(substring(arena, call.self, sign, text.size()));
  return out.build();
}

// Returns whether a string is not empty and has only characters of a class. Python knows the
// classes of all characters, this the ones of ASCII.
template <int (*kIsInClass)(int)>
Value is_class(const Call& call) {
  const std::string_view text = call.self.text();
  call.arena.charge(text.size() / kBytesPerStep);
  const auto is_ascii = [](char c) { return static_cast<uint8_t>(c) < 0x80; };
  fail_if(!std::all_of(text.begin(), text.end(), is_ascii),
          "the class of characters other than ASCII is not supported");
  return Value::of_bool(!text.empty() && std::all_of(text.begin(), text.end(), kIsInClass));
}

Value count_in_sequence(const Call& call) {
  int64_t count = 0;
  for (const Value& item : collect(call.arena, call.self)) {
    if (equal(call.arena, item, call[0])) ++count;
  }
  return Value::of_int(count);
}

Value index_in_sequence(const Call& call) {
  const std::vector<Value> items = collect(call.arena, call.self);
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(call.arena, items[i], call[0])) return Value::of_int(static_cast<int64_t>(i));
  }
  throw TemplateFailure("the value is not in the list");
}

Value dict_get(const Call& call) {
  require_hashable(call[0]);
  const Value* const found = find_key(call.arena, *call.self.dict, call[0]);
  if (found != nullptr) return *found;
  return call.has(1) ? call[1] : Value::none();
}

Value dict_items_method(const Call& call) {
  return dict_items(call.arena, *call.self.dict);
}

template <bool kKeys>
Value dict_parts(const Call& call) {
  std::vector<Value> parts;
  for (const Pair& pair : *call.self.dict) parts.push_back(kKeys ? pair.key : pair.value);
  return new_sequence(call.arena, Kind::kView, parts, kKeys ? "dict_keys" : "dict_values");
}

Value loop_changed(const Call& call) {
  const Value now = new_tuple(call.arena, call.all.positional);
  const Value last = std::exchange(call.self.loop->last_changed, now);
  return Value::of_bool(last.is_missing() || !equal(call.arena, last, now));
}

Value cycle(const Call& call) {
  const auto& items = call.all.positional;
  if (items.empty()) throw TemplateFailure("no items for cycling given");
  return items[static_cast<size_t>(call.self.loop->index0) % items.size()];
}

Value cycler_next(const Call& call) {
  const Sequence& sequence = *call.self.sequence;
  return sequence.items[sequence.position++ % sequence.size];
}

Value splitlines(const Call& call) {
  return new_list(call.arena, split_lines(call.arena, call.self, call.integer(0, 0) != 0));
}

Value format_method(const Call& call) {
  require_plain(call);
  return format_braces(call.arena, call.self, call.all);
}

Value copy(const Call& call) {
  return call.self;  // nothing changes it
}

const Builtins kSupported = {
    {"strip", {"/chars"}, 0, strip_method<Side::kBoth>, kString},
    {"lstrip", {"/chars"}, 0, strip_method<Side::kLeft>, kString},
    {"rstrip", {"/chars"}, 0, strip_method<Side::kRight>, kString},
    {"split", {"sep", "maxsplit"}, 0, split_method, kString},
    {"rsplit", {"sep", "maxsplit"}, 0, rsplit_method, kString},
    {"startswith", {"/prefix"}, 1, has_affix<false>, kString},
    {"endswith", {"/suffix"}, 1, has_affix<true>, kString},
    {"replace", {"/old", "/new", "/count"}, 2, replace_method, kString},
    {"upper", {}, 0, case_method<LetterCase::kUpper>, kString},
    {"lower", {}, 0, case_method<LetterCase::kLower>, kString},
    {"title", {}, 0, case_method<LetterCase::kTitle>, kString},
    {"capitalize", {}, 0, case_method<LetterCase::kCapitalize>, kString},
    {"partition", {"/sep"}, 1, partition, kString},
    {"find", {"/sub"}, 1, find_method<false, false>, kString},
    {"rfind", {"/sub"}, 1, find_method<true, false>, kString},
    {"index", {"/sub"}, 1, find_method<false, true>, kString},
    {"rindex", {"/sub"}, 1, find_method<true, true>, kString},
    {"count", {"/sub"}, 1, count_in_string, kString},
    {"join", {"/iterable"}, 1, join_method, kString},
    {"zfill", {"/width"}, 1, zfill, kString},
    {"isalpha", {}, 0, is_class<std::isalpha>, kString},
    {"isdigit", {}, 0, is_class<std::isdigit>, kString},
    {"isalnum", {}, 0, is_class<std::isalnum>, kString},
    {"count", {"/value"}, 1, count_in_sequence, kSequences},
    {"index", {"/value"}, 1, index_in_sequence, kSequences},
    {"get", {"/key", "/default"}, 1, dict_get, kDict},
    {"items", {}, 0, dict_items_method, kDict},
    {"keys", {}, 0, dict_parts<true>, kDict},
    {"values", {}, 0, dict_parts<false>, kDict},
    {"changed", {"*"}, 0, loop_changed, kind_bits(Kind::kLoop)},
    {"cycle", {"*"}, 0, cycle, kind_bits(Kind::kLoop)},
    {"next", {}, 0, cycler_next, kind_bits(Kind::kCycler)},
    {"splitlines", {"keepends"}, 0, splitlines, kString},
    {"format", {"*"}, 0, format_method, kString},
    {"copy", {}, 0, copy, kDict | kList},
};

Builtins all_methods() {
  Builtins all = kSupported;
  add_unsupported(all,
                  "casefold center encode expandtabs format_map isascii isdecimal isidentifier "
                  "islower isnumeric isprintable isspace istitle isupper ljust maketrans "
                  "removeprefix removesuffix rjust rpartition swapcase translate",
                  kString);
  add_unsupported(all,
                  "as_integer_ratio bit_count bit_length conjugate denominator from_bytes fromhex "
                  "hex imag is_integer numerator real to_bytes",
                  kNumbers);
  add_unsupported(all, "start step stop", kind_bits(Kind::kRange));
  add_unsupported(all, "isdisjoint mapping", kind_bits(Kind::kView));
  add_unsupported(all, "arguments name", kind_bits(Kind::kMacro));
  add_unsupported(all, "current items pos reset", kind_bits(Kind::kCycler));
  add_unsupported(all, "sep used", kind_bits(Kind::kJoiner));
  add_unsupported(all, "grouper list", kind_bits(Kind::kTuple));  // of an item of groupby
  add_unsupported(all, "fromkeys", kDict);
  add_unsupported(all, "append clear extend insert pop remove reverse sort", kList, true);
  add_unsupported(all, "clear pop popitem setdefault update", kDict, true);
  return all;
}

}  // namespace

const Methods& find_methods(std::string_view name) {
  static const Builtins kMethods = all_methods();
  static const auto kByName = [] {
    std::unordered_map<std::string_view, Methods> by_name;
    for (const Builtin& method : kMethods) by_name[method.name].push_back(&method);
    return by_name;
  }();
  static const Methods kNone;
  const auto found = kByName.find(name);
  return found == kByName.end() ? kNone : found->second;
}

}  // namespace zeroth::data::jinja
