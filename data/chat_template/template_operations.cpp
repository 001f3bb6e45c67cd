#include "data/chat_template/template_operations.h"

#include <algorithm>
#include <cmath>

#include "base/text/printable.h"
#include "data/chat_template/template_evaluator.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data::jinja {
namespace {

constexpr size_t kKeysPerStep = 8;
constexpr int64_t kMaxExactDouble = int64_t{1} << 53;

void check_depth(int depth) {
  if (depth > kMaxDepth) throw TemplateFailure("nested deeper than the limit of {}", kMaxDepth);
}

[[noreturn]] void throw_too_large() {
  throw TemplateFailure("arithmetic on integers beyond 64 bits is not supported");
}

[[noreturn]] void throw_operands(Operator op, const Value& left, const Value& right) {
  for (const Value* const value : {&left, &right}) {
    if (value->is(Kind::kUndefined)) throw_undefined(*value);
  }
  throw TemplateFailure("'{}' of '{}' and '{}' is not supported",
                        kOperatorSymbols[static_cast<size_t>(op)], type_name(left),
                        type_name(right));
}

int64_t checked_product(int64_t left, int64_t right) {
  int64_t result = 0;
  if (__builtin_mul_overflow(left, right, &result)) throw_too_large();
  return result;
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) throw TemplateFailure("a negative exponent is not supported");
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent & 1) result = checked_product(result, base);
    exponent >>= 1;
    if (exponent > 0) base = checked_product(base, base);
  }
  return Value::of_int(result);
}

// Returns a number as a float with the same value.
double exact_double(const Value& number) {
  if (number.is(Kind::kFloat)) return number.real;
  const bool exact = number.is_integral() && number.as_integer() <= kMaxExactDouble &&
                     number.as_integer() >= -kMaxExactDouble;
  if (exact) return static_cast<double>(number.as_integer());
  throw TemplateFailure("an integer beyond 53 bits as a float is not supported");
}

Value integer_binary(Operator op, int64_t left, int64_t right) {
  const int64_t rest = right == 0 || right == -1 ? 0 : left % right;
  const bool rounds_down = rest != 0 && (rest < 0) != (right < 0);
  int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(left, right, &result)) throw_too_large();
      return Value::of_int(result);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(left, right, &result)) throw_too_large();
      return Value::of_int(result);
    case Operator::kMultiply:
      return Value::of_int(checked_product(left, right));
    case Operator::kFloorDivide:
      if (right == -1) return Value::of_int(checked_product(left, -1));
      return Value::of_int(left / right - (rounds_down ? 1 : 0));
    case Operator::kModulo:
      return Value::of_int(rounds_down ? rest + right : rest);
    default:
      return power(left, right);
  }
}

Value number_binary(Operator op, const Value& left, const Value& right) {
  const bool integers = left.is_integral() && right.is_integral();
  const bool divides =
      op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && !truth(right)) throw TemplateFailure("division by zero");
  if (integers && op != Operator::kDivide) {
    return integer_binary(op, left.as_integer(), right.as_integer());
  }
  if (left.is(Kind::kBigInt) || right.is(Kind::kBigInt)) throw_too_large();
  const double a = exact_double(left);
  const double b = exact_double(right);
  switch (op) {
    case Operator::kAdd:
      return Value::of_float(a + b);
    case Operator::kSubtract:
      return Value::of_float(a - b);
    case Operator::kMultiply:
      return Value::of_float(a * b);
    case Operator::kDivide:
      return Value::of_float(a / b);
    default:
      throw_operands(op, left, right);
  }
}

Value repeat(Arena& arena, const Value& value, int64_t count) {
  if (value.is_string()) {
    TextBuilder out(arena);
    out.append_times(value, count);
    return out.build(value.safe);
  }
  const Sequence& sequence = *value.sequence;
  const auto times = static_cast<uint64_t>(sequence.size > 0 ? std::max<int64_t>(count, 0) : 0);
  const bool huge = times > 0 && times > SIZE_MAX / 64 / sequence.size;
  arena.require(huge ? SIZE_MAX / 2 : times * sequence.size * sizeof(Value));
  arena.charge(times * sequence.size);
  std::vector<Value> items;
  for (uint64_t i = 0; i < times; ++i) items.insert(items.end(), sequence.begin(), sequence.end());
  return new_sequence(arena, value.kind, items);
}

Value add(Arena& arena, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) {
    if (left.safe == right.safe) return concat(arena, left, right);
    return concat(arena, escape_html(arena, left), escape_html(arena, right));
  }
  if (!left.is_list() || left.kind != right.kind) throw_operands(Operator::kAdd, left, right);
  std::vector<Value> items(left.sequence->begin(), left.sequence->end());
  items.insert(items.end(), right.sequence->begin(), right.sequence->end());
  arena.charge(items.size());
  return new_sequence(arena, left.kind, items);
}

// Returns a number below, equal to or above 0; nullopt if one of them is not a number.
std::optional<int> compare_numbers(const Value& left, const Value& right) {
  const auto order = [](const auto& a, const auto& b) { return a < b ? -1 : a > b ? 1 : 0; };
  if (left.is_integral() && right.is_integral()) {
    return order(left.as_integer(), right.as_integer());
  }
  const double a = exact_double(left);
  const double b = exact_double(right);
  if (std::isnan(a) || std::isnan(b)) return std::nullopt;
  return order(a, b);
}

bool dicts_equal(Arena& arena, const Dict& left, const Dict& right, int depth) {
  return left.size == right.size && std::all_of(left.begin(), left.end(), [&](const Pair& pair) {
           const Value* const value = find_key(arena, right, pair.key);
           return value != nullptr && equal(arena, pair.value, *value, depth + 1);
         });
}

bool contains(Arena& arena, const Value& container, const Value& item) {
  if (container.is_string()) {
    arena.charge(container.string->size / kBytesPerStep);
    return container.text().find(to_text(item)) != std::string_view::npos;
  }
  if (container.is(Kind::kDict) || container.is(Kind::kView)) require_hashable(item);
  if (container.is(Kind::kDict)) return find_key(arena, *container.dict, item) != nullptr;
  const std::vector<Value> items = collect(arena, container);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& other) { return equal(arena, other, item); });
}

}  // namespace

std::string_view type_name(const Value& value) {
  constexpr std::array<std::string_view, 21> kNames = {
      "missing", "missing",   "Undefined", "NoneType",    "bool",   "int",    "int",
      "float",   "str",       "list",      "tuple",       "range",  "view",   "generator",
      "dict",    "Namespace", "Macro",     "LoopContext", "method", "Cycler", "Joiner"};
  return value.is(Kind::kView) ? value.sequence->printed : kNames[static_cast<size_t>(value.kind)];
}

Value new_undefined(Arena& arena, std::string_view message) {
  Value value = copy_string(arena, message);
  value.kind = Kind::kUndefined;
  return value;
}

void throw_undefined(const Value& value) {
  throw TemplateFailure("{}", shortened(value.text(), 200));
}

Value new_sequence(Arena& arena, Kind kind, const std::vector<Value>& items,
                   std::string_view printed) {
  Value value(kind);
  value.sequence =
      arena.create(Sequence{arena.copy(items.data(), items.size()), items.size(), printed});
  return value;
}

Value new_list(Arena& arena, const std::vector<Value>& items) {
  return new_sequence(arena, Kind::kList, items);
}

Value new_tuple(Arena& arena, const std::vector<Value>& items) {
  return new_sequence(arena, Kind::kTuple, items);
}

Value new_generator(Arena& arena, const std::vector<Value>& items) {
  return new_sequence(arena, Kind::kGenerator, items);
}

Value new_dict(Arena& arena, const std::vector<Pair>& pairs) {
  std::vector<Pair> chosen;
  for (const Pair& pair : pairs) {
    require_hashable(pair.key);
    const Dict known{.pairs = chosen.data(), .size = chosen.size()};
    if (const Value* const found = find_key(arena, known, pair.key)) {
      *const_cast<Value*>(found) = pair.value;
    } else {
      chosen.push_back(pair);
    }
  }
  Value value(Kind::kDict);
  value.dict = arena.create(Dict{arena.copy(chosen.data(), chosen.size()), chosen.size()});
  return value;
}

Value dict_items(Arena& arena, const Dict& dict) {
  std::vector<Value> items;
  for (const Pair& pair : dict) items.push_back(new_tuple(arena, {pair.key, pair.value}));
  return new_sequence(arena, Kind::kView, items, "dict_items");
}

const Value* find_key(Arena& arena, const Dict& dict, const Value& key) {
  arena.charge(dict.size / kKeysPerStep);
  for (const Pair& pair : dict) {
    const bool found = key.is_string() && pair.key.is_string() ? key.text() == pair.key.text()
                                                               : equal(arena, pair.key, key);
    if (found) return &pair.value;
  }
  return nullptr;
}

void require_hashable(const Value& value) {
  fail_if(value.is(Kind::kList) || value.is(Kind::kDict), "unhashable type: '{}'",
          type_name(value));
  if (!value.is(Kind::kTuple)) return;
  for (const Value& item : *value.sequence) require_hashable(item);
}

std::vector<Value> collect(Arena& arena, const Value& value) {
  std::vector<Value> items;
  if (value.is_sequence() || value.is(Kind::kGenerator)) {
    fail_if(value.is(Kind::kGenerator) && value.sequence->position++ > 0,
            "a second use of what a filter returned is not supported");
    items.assign(value.sequence->begin(), value.sequence->end());
  } else if (value.is_string()) {
    for (size_t at = 0; at < value.string->size;) {
      const size_t end = at + utf8_length(value.string->data[at]);
      items.push_back(substring(arena, value, at, end));
      at = end;
    }
  } else if (value.is(Kind::kDict)) {
    for (const Pair& pair : *value.dict) items.push_back(pair.key);
  } else if (!value.is(Kind::kUndefined)) {
    throw TemplateFailure("'{}' object is not iterable", type_name(value));
  }
  arena.charge(items.size());
  return items;
}

std::optional<int64_t> length_of(const Value& value) {
  if (value.is_string()) return value.string->length();
  if (value.is_sequence()) return static_cast<int64_t>(value.sequence->size);
  if (value.is(Kind::kDict)) return static_cast<int64_t>(value.dict->size);
  return value.is(Kind::kUndefined) ? std::optional<int64_t>(0) : std::nullopt;
}

bool truth(const Value& value) {
  switch (value.kind) {
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.real != 0;
    case Kind::kString:
      return value.string->size != 0;
    default:
      return length_of(value).value_or(1) != 0;
  }
}

bool equal(Arena& arena, const Value& left, const Value& right, int depth) {
  check_depth(depth);
  arena.charge(1);
  if (left.is_number() && right.is_number()) return compare_numbers(left, right) == 0;
  if (left.kind != right.kind) return false;
  switch (left.kind) {
    case Kind::kNone:
    case Kind::kUndefined:
      return true;
    case Kind::kString:
      arena.charge(left.string->size == right.string->size ? left.string->size / 256 : 0);
      return left.text() == right.text();
    case Kind::kList:
    case Kind::kTuple:
      return std::equal(left.sequence->begin(), left.sequence->end(), right.sequence->begin(),
                        right.sequence->end(), [&](const Value& a, const Value& b) {
                          return equal(arena, a, b, depth + 1);
                        });
    case Kind::kDict:
      return dicts_equal(arena, *left.dict, *right.dict, depth);
    case Kind::kRange:
    case Kind::kView:
    case Kind::kFunction:
      throw_operands(Operator::kEqual, left, right);
    default:
      return left.sequence == right.sequence;  // the same object
  }
}

bool less(Arena& arena, const Value& left, const Value& right, int depth) {
  check_depth(depth);
  if (left.is_number() && right.is_number()) return compare_numbers(left, right).value_or(1) < 0;
  if (left.is_string() && right.is_string()) return left.text() < right.text();
  if (!left.is_list() || left.kind != right.kind) throw_operands(Operator::kLess, left, right);
  const Sequence& a = *left.sequence;
  const Sequence& b = *right.sequence;
  for (size_t i = 0; i < std::min(a.size, b.size); ++i) {
    if (equal(arena, a.items[i], b.items[i], depth + 1)) continue;
    return less(arena, a.items[i], b.items[i], depth + 1);
  }
  return a.size < b.size;
}

bool compare(Arena& arena, Operator op, const Value& left, const Value& right) {
  switch (op) {
    case Operator::kEqual:
      return equal(arena, left, right);
    case Operator::kNotEqual:
      return !equal(arena, left, right);
    case Operator::kLess:
      return less(arena, left, right);
    case Operator::kGreater:
      return less(arena, right, left);
    case Operator::kLessEqual:
      return less(arena, left, right) || equal(arena, left, right);
    case Operator::kGreaterEqual:
      return less(arena, right, left) || equal(arena, left, right);
    default:
      return contains(arena, right, left) == (op == Operator::kIn);
  }
}

Value binary(Arena& arena, Operator op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return number_binary(op, left, right);
  if (op == Operator::kAdd) return add(arena, left, right);
  if (op == Operator::kModulo && left.is_string()) return format_percent(arena, left, right);
  const auto repeats = [](const Value& value) { return value.is_string() || value.is_list(); };
  const bool multiplies = op == Operator::kMultiply;
  if (multiplies && repeats(left) && right.is_integral()) {
    return repeat(arena, left, right.as_integer());
  }
  if (multiplies && repeats(right) && left.is_integral()) {
    return repeat(arena, right, left.as_integer());
  }
  throw_operands(op, left, right);
}

Value negate(const Value& value) {
  if (value.is_integral()) return Value::of_int(checked_product(value.as_integer(), -1));
  if (value.is(Kind::kFloat)) return Value::of_float(-value.real);
  throw_operands(Operator::kSubtract, Value::of_int(0), value);
}

int64_t to_index(const Value& value) {
  if (value.is(Kind::kUndefined)) throw_undefined(value);
  if (value.is_integral()) return value.as_integer();
  throw TemplateFailure("'{}' object cannot be interpreted as an integer", type_name(value));
}

std::string_view to_text(const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is(Kind::kUndefined)) throw_undefined(value);
  throw TemplateFailure("a string is expected, not '{}'", type_name(value));
}

std::optional<double> as_double(const Value& value) {
  if (value.is_integral()) return static_cast<double>(value.as_integer());
  return value.is(Kind::kFloat) ? std::optional(value.real) : std::nullopt;
}

}  // namespace zeroth::data::jinja
