// Global functions, tests, and what all builtins share.
#include <algorithm>

#include "base/text/printable.h"
#include "data/chat_template/template_evaluator.h"

namespace zeroth::data::jinja {
namespace {

constexpr size_t kMaxMessageBytes = 4096;  // of raise_exception
constexpr size_t kMaxTimeBytes = 4096;     // of strftime_now's format
constexpr int64_t kMaxRange = 100'000;     // as in Jinja's sandbox

Value range(const Call& call) {
  const auto& bounds = call.all.positional;
  fail_if(bounds.empty() || bounds.size() > 3 || !call.all.named.empty(),
          "range takes one to three numbers");
  const int64_t start = bounds.size() > 1 ? to_index(bounds[0]) : 0;
  const int64_t stop = to_index(bounds[bounds.size() == 1 ? 0 : 1]);
  const int64_t step = bounds.size() > 2 ? to_index(bounds[2]) : 1;
  if (step == 0) throw TemplateFailure("the step of a range cannot be zero");
  std::vector<Value> items;
  bool overflow = false;
  for (int64_t i = start; !overflow && (step > 0 ? i < stop : i > stop);
       overflow = __builtin_add_overflow(i, step, &i)) {
    fail_if(std::ssize(items) == kMaxRange, "a range has more than the limit of {} numbers",
            kMaxRange);
    items.push_back(Value::of_int(i));
  }
  call.arena.charge(items.size());
  const std::string last = step == 1 ? "" : fmt::format(", {}", step);
  const std::string printed = fmt::format("range({}, {}{})", start, stop, last);
  return new_sequence(call.arena, Kind::kRange, items, copy_string(call.arena, printed).text());
}

Value dict(const Call& call) {
  const auto& [positional, named] = call.all;
  if (positional.size() > 1) throw TemplateFailure("dict takes at most one argument");
  std::vector<Pair> pairs;
  if (!positional.empty() && positional[0].is(Kind::kUndefined)) throw_undefined(positional[0]);
  if (!positional.empty() && positional[0].is(Kind::kDict)) {
    pairs.assign(positional[0].dict->begin(), positional[0].dict->end());
  } else if (!positional.empty()) {
    for (const Value& item : collect(call.arena, positional[0])) {
      const std::vector<Value> pair = collect(call.arena, item);
      if (pair.size() != 2) throw TemplateFailure("dict needs pairs of a key and a value");
      pairs.push_back({pair[0], pair[1]});
    }
  }
  for (const auto& [name, value] : named) pairs.push_back({copy_string(call.arena, name), value});
  return new_dict(call.arena, pairs);
}

Value name_space(const Call& call) {
  const Value attributes = dict(call);
  Value value(Kind::kNamespace);
  value.name_space = call.arena.create(*attributes.dict);
  for (const Pair& pair : *attributes.dict) (void)to_text(pair.key);
  return value;
}

Value raise_exception(const Call& call) {
  const Value message = to_string_value(call.arena, call[0]);
  throw TemplateFailure("{}", shortened(message.text(), kMaxMessageBytes));
}

// Returns the time as Python's strftime does, which has another %f, %z and %Z.
Value strftime_now(const Call& call) {
  const std::string_view format = call.string(0);
  std::tm time{};
  if (call.evaluator.context().now) {
    time = *call.evaluator.context().now;
  } else {
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &time);
  }
  const bool differs = format.find("%f") != format.npos || format.find("%z") != format.npos ||
                       format.find("%Z") != format.npos || format.find('\0') != format.npos;
  fail_if(differs || format.size() > kMaxTimeBytes, "this format of a time is not supported");
  std::string result(kMaxTimeBytes * 4, '\0');
  result.resize(
      std::strftime(result.data(), result.size(), (std::string(format) + " ").c_str(), &time));
  if (result.empty()) throw TemplateFailure("the format of a time is not supported");
  result.pop_back();
  return copy_string(call.arena, result);
}

Value cycler(const Call& call) {
  fail_if(call.all.positional.empty() || !call.all.named.empty(),
          "a cycler needs at least one item");
  return new_sequence(call.arena, Kind::kCycler, call.all.positional);
}

Value joiner(const Call& call) {
  const Value separator = call.has(0) ? call[0] : view_string(call.arena, ", ");
  return new_sequence(call.arena, Kind::kJoiner, {separator});
}

Value is_of_kind(const Call& call) {
  return Value::of_bool((kind_bits(call.self.kind) & call.builtin.kinds) != 0);
}

template <bool kTrue>
Value is_truth(const Call& call) {
  return Value::of_bool(call.self.is(Kind::kBool) && call.self.boolean == kTrue);
}

template <int64_t kRest>
Value has_rest(const Call& call) {
  const Value divisor = call.has(0) ? call[0] : Value::of_int(2);
  const Value rest = binary(call.arena, Operator::kModulo, call.self, divisor);
  return Value::of_bool(equal(call.arena, rest, Value::of_int(kRest)));
}

template <Operator kOperator>
Value compares(const Call& call) {
  return Value::of_bool(compare(call.arena, kOperator, call.self, call[0]));
}

const Builtin* find_builtin(const Builtins& builtins, std::string_view name) {
  const auto found = std::find_if(builtins.begin(), builtins.end(),
                                  [&](const Builtin& builtin) { return builtin.name == name; });
  return found == builtins.end() ? nullptr : &*found;
}

Builtins make_tests() {
  constexpr uint32_t kNumbers = kind_bits(Kind::kInt, Kind::kBigInt, Kind::kFloat, Kind::kBool);
  constexpr uint32_t kSequences = kind_bits(Kind::kString, Kind::kList, Kind::kTuple, Kind::kRange,
                                            Kind::kDict, Kind::kUndefined);
  constexpr uint32_t kIterable = kSequences | kind_bits(Kind::kView, Kind::kGenerator, Kind::kLoop);
  constexpr uint32_t kCallable =
      kind_bits(Kind::kFunction, Kind::kMacro, Kind::kLoop, Kind::kJoiner, Kind::kUndefined);
  Builtins tests = {
      {"boolean", {}, 0, is_of_kind, kind_bits(Kind::kBool)},
      {"callable", {}, 0, is_of_kind, kCallable},
      {"defined", {}, 0, is_of_kind, ~kind_bits(Kind::kUndefined)},
      {"divisibleby", {"num"}, 1, has_rest<0>},
      {"even", {}, 0, has_rest<0>},
      {"false", {}, 0, is_truth<false>},
      {"float", {}, 0, is_of_kind, kind_bits(Kind::kFloat)},
      {"in", {"seq"}, 1, compares<Operator::kIn>},
      {"integer", {}, 0, is_of_kind, kind_bits(Kind::kInt, Kind::kBigInt)},
      {"iterable", {}, 0, is_of_kind, kIterable},
      {"mapping", {}, 0, is_of_kind, kind_bits(Kind::kDict)},
      {"none", {}, 0, is_of_kind, kind_bits(Kind::kNone)},
      {"number", {}, 0, is_of_kind, kNumbers},
      {"odd", {}, 0, has_rest<1>},
      {"sequence", {}, 0, is_of_kind, kSequences},
      {"string", {}, 0, is_of_kind, kind_bits(Kind::kString)},
      {"true", {}, 0, is_truth<true>},
      {"undefined", {}, 0, is_of_kind, kind_bits(Kind::kUndefined)},
  };
  const auto add = [&](std::initializer_list<std::string_view> names, auto* run) {
    for (const std::string_view name : names) tests.push_back({name, {"/other"}, 1, run});
  };
  add({"==", "eq", "equalto"}, compares<Operator::kEqual>);
  add({"!=", "ne"}, compares<Operator::kNotEqual>);
  add({"<", "lt", "lessthan"}, compares<Operator::kLess>);
  add({"<=", "le"}, compares<Operator::kLessEqual>);
  add({">", "gt", "greaterthan"}, compares<Operator::kGreater>);
  add({">=", "ge"}, compares<Operator::kGreaterEqual>);
  add_unsupported(tests, "escaped filter lower sameas test upper");
  return tests;
}

Builtins make_globals() {
  Builtins globals = {
      {"range", {"*"}, 0, range},
      {"dict", {"*"}, 0, dict},
      {"namespace", {"*"}, 0, name_space},
      {"cycler", {"*"}, 0, cycler},
      {"joiner", {"sep"}, 0, joiner},
      {"raise_exception", {"message"}, 1, raise_exception},
      {"strftime_now", {"format"}, 1, strftime_now},
  };
  add_unsupported(globals, "lipsum");
  return globals;
}

}  // namespace

bool Call::flag(size_t i) const {
  return has(i) && truth(arguments[i]);
}

int64_t Call::integer(size_t i, int64_t missing) const {
  return has(i) ? to_index(arguments[i]) : missing;
}

std::string_view Call::string(size_t i) const {
  return to_text(arguments[i]);
}

Value Call::text() const {
  return to_string_value(arena, self);
}

void add_unsupported(Builtins& builtins, std::string_view words, uint32_t kinds, bool is_unsafe) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    builtins.push_back({.name = words.substr(0, end), .kinds = kinds, .is_unsafe = is_unsafe});
    words.remove_prefix(std::min(end + 1, words.size()));
  }
}

const Builtin* find_test(std::string_view name) {
  static const Builtins kTests = make_tests();
  return find_builtin(kTests, name);
}

const Builtin* find_global(std::string_view name) {
  static const Builtins kGlobals = make_globals();
  return find_builtin(kGlobals, name);
}

const Builtin* find_filter(std::string_view name) {
  const Builtin* const found = find_builtin(filters(), name);
  return found != nullptr ? found : find_builtin(list_filters(), name);
}

}  // namespace zeroth::data::jinja
