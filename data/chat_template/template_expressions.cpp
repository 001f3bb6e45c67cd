// Evaluation of expressions: operators, attributes, items and calls.
#include <algorithm>

#include "base/text/printable.h"
#include "data/chat_template/template_evaluator.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data::jinja {
namespace {

const Builtin* find_of_kind(const Methods& methods, Kind kind) {
  for (const Builtin* const method : methods) {
    if ((method->kinds & kind_bits(kind)) != 0) return method;
  }
  return nullptr;
}

Value missing_attribute(Arena& arena, const Value& object, const Value& key) {
  return new_undefined(arena, fmt::format("'{}' object has no attribute '{}'", type_name(object),
                                          to_string_value(arena, key).text()));
}

// Returns what object[key] is; kMissing where Python raises a TypeError or a LookupError.
Value python_item(Arena& arena, const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    if (key.is(Kind::kList) || key.is(Kind::kDict)) return {};
    const Value* const value = find_key(arena, *object.dict, key);
    return value ? *value : Value{};
  }
  const bool indexed = object.is_string() || object.is_list() || object.is(Kind::kRange);
  if (!indexed || !key.is_integral()) return {};
  const int64_t size = *length_of(object);
  const int64_t index = key.as_integer() + (key.as_integer() < 0 ? size : 0);
  if (index < 0 || index >= size) return {};
  if (!object.is_string()) return object.sequence->items[index];
  arena.charge(static_cast<uint64_t>(index) / kBytesPerStep);
  const size_t begin = char_offset(*object.string, index);
  return substring(arena, object, begin, begin + utf8_length(object.string->data[begin]));
}

// Returns object[start:stop:step] for three bounds, as Python does.
Value get_slice(Arena& arena, const Value& object, const std::array<Value, 3>& bounds) {
  if (object.is(Kind::kUndefined)) throw_undefined(object);
  fail_if(!object.is_string() && !object.is_list(), "a slice of '{}' is not supported",
          type_name(object));
  const int64_t size = *length_of(object);
  const auto has = [&](size_t i) { return !bounds[i].is(Kind::kNone); };
  const int64_t step = has(2) ? std::clamp(to_index(bounds[2]), -size - 1, size + 1) : 1;
  if (step == 0) throw TemplateFailure("the step of a slice cannot be zero");
  // Python's slice.indices().
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? size : size - 1;
  const auto limit = [&](size_t i, int64_t missing) {
    if (!has(i)) return missing;
    const int64_t index = to_index(bounds[i]);
    return std::clamp(index < 0 ? index + size : index, low, high);
  };
  const int64_t start = limit(0, step > 0 ? low : high);
  const int64_t stop = limit(1, step > 0 ? high : low);
  if (object.is_string() && step == 1) {
    const size_t begin = char_offset(*object.string, start);
    arena.charge(object.string->size / 64);
    return substring(arena, object, begin,
                     stop > start ? char_offset(*object.string, stop) : begin);
  }
  const std::vector<Value> items = collect(arena, object);
  std::vector<Value> chosen;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    chosen.push_back(items[static_cast<size_t>(i)]);
  }
  if (object.is_string()) {
    TextBuilder out(arena);
    for (const Value& character : chosen) out.append(character);
    return out.build(object.safe);
  }
  Value result = new_sequence(arena, object.kind, chosen);
  result.source = object.source;
  return result;
}

}  // namespace

Value Evaluator::evaluate(const Expr& expr) {
  arena_.charge(1);
  if (expr.kind == ExprKind::kConst) return expr.constant;
  if (expr.kind == ExprKind::kName) return evaluate_name(expr);
  enter_level();
  const Value value = evaluate_deep(expr);
  --levels_;
  return value;
}

Value Evaluator::evaluate_name(const Expr& expr) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->outer) {
    const Value& value = scope->values[expr.variable];
    if (value.is_missing()) continue;
    if (value.is(Kind::kUnassigned)) break;
    return value;
  }
  return new_undefined(arena_, fmt::format("'{}' is undefined", expr.name));
}

Value Evaluator::evaluate_deep(const Expr& expr) {
  const auto& children = expr.children;
  switch (expr.kind) {
    case ExprKind::kTuple:
      return new_tuple(arena_, evaluate_all(children));
    case ExprKind::kList:
      return new_list(arena_, evaluate_all(children));
    case ExprKind::kDict: {
      std::vector<Pair> pairs;
      for (size_t i = 0; i < children.size(); i += 2) {
        const Value key = evaluate(*children[i]);
        pairs.push_back({key, evaluate(*children[i + 1])});
      }
      offset_ = expr.offset;
      return new_dict(arena_, pairs);
    }
    case ExprKind::kAttribute: {
      const Value object = evaluate(*children[0]);
      offset_ = expr.offset;
      return get_attribute(object, expr.constant, expr.builtins);
    }
    case ExprKind::kItem: {
      const Value object = evaluate(*children[0]);
      const Value key = evaluate(*children[1]);
      offset_ = expr.offset;
      return get_item(object, key);
    }
    case ExprKind::kSlice:
      return evaluate_slice(expr);
    case ExprKind::kCall:
      return evaluate_call(expr);
    case ExprKind::kFilter:
    case ExprKind::kTest:
      return evaluate_builtin(expr, evaluate(*children[0]));
    default:
      return evaluate_operator(expr);
  }
}

Value Evaluator::evaluate_operator(const Expr& expr) {
  const auto& children = expr.children;
  switch (expr.kind) {
    case ExprKind::kNot:
      return Value::of_bool(!truth(evaluate(*children[0])));
    case ExprKind::kNegative:
      return negate(evaluate(*children[0]));
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      Value value;
      for (const Expr* const child : children) {
        value = evaluate(*child);
        if (truth(value) == (expr.kind == ExprKind::kOr)) break;
      }
      return value;
    }
    case ExprKind::kCompare: {
      Value left = evaluate(*children[0]);
      bool holds = true;
      for (size_t i = 0; holds && i < expr.ops.size(); ++i) {
        const Value right = evaluate(*children[i + 1]);
        offset_ = expr.offset;
        holds = compare(arena_, expr.ops[i], std::exchange(left, right), right);
      }
      return Value::of_bool(holds);
    }
    case ExprKind::kBinary: {
      const Value left = evaluate(*children[0]);
      const Value right = evaluate(*children[1]);
      offset_ = expr.offset;
      return binary(arena_, expr.op, left, right);
    }
    case ExprKind::kConcat: {
      TextBuilder out(arena_);
      for (const Value& value : evaluate_all(children)) append_str(out, value);
      return out.build();
    }
    default:  // kCondition
      if (truth(evaluate(*children[0]))) return evaluate(*children[1]);
      if (children[2] != nullptr) return evaluate(*children[2]);
      return new_undefined(arena_, "the condition is false and there is no 'else'");
  }
}

std::vector<Value> Evaluator::evaluate_all(const std::vector<Expr*>& exprs) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const Expr* const expr : exprs) values.push_back(evaluate(*expr));
  return values;
}

Value Evaluator::evaluate_slice(const Expr& expr) {
  const Value object = evaluate(*expr.children[0]);
  std::array<Value, 3> bounds;
  for (size_t i = 0; i < 3; ++i) {
    const Expr* const bound = expr.children[i + 1];
    bounds[i] = bound ? evaluate(*bound) : Value::none();
  }
  offset_ = expr.offset;
  return get_slice(arena_, object, bounds);
}

Value Evaluator::evaluate_call(const Expr& expr) {
  const Value function = evaluate(*expr.children[0]);
  const CallArguments arguments = evaluate_arguments(expr);
  offset_ = expr.offset;
  return call(function, arguments);
}

// Evaluates filters of a block: the innermost one has no subject of its own.
Value Evaluator::evaluate_filters(const Expr& expr, const Value& text) {
  const Expr* const inner = expr.children[0];
  return evaluate_builtin(expr, inner ? evaluate_filters(*inner, text) : text);
}

Value Evaluator::evaluate_builtin(const Expr& expr, const Value& subject) {
  const CallArguments arguments = evaluate_arguments(expr);
  offset_ = expr.offset;
  if (!expr.builtins.empty()) return run_builtin(*expr.builtins[0], subject, arguments);
  throw TemplateFailure("there is no {} named '{}'",
                        expr.kind == ExprKind::kFilter ? "filter" : "test", shortened(expr.name));
}

CallArguments Evaluator::evaluate_arguments(const Expr& expr) {
  CallArguments result;
  for (const auto& [name, argument] : expr.arguments) {
    const Value value = evaluate(*argument);
    if (name.empty()) {
      result.positional.push_back(value);
    } else if (name == "*") {
      for (const Value& item : collect(arena_, value)) result.positional.push_back(item);
    } else if (name != "**") {
      result.named.emplace_back(name, value);
    } else if (!value.is(Kind::kDict)) {
      throw TemplateFailure("the argument after ** has to be a dict");
    } else {
      for (const auto& [key, item] : *value.dict) result.named.emplace_back(to_text(key), item);
    }
  }
  for (size_t i = 0; i < result.named.size(); ++i) {
    for (size_t other = 0; other < i; ++other) {
      if (result.named[i].first != result.named[other].first) continue;
      throw TemplateFailure("the argument '{}' is passed twice", shortened(result.named[i].first));
    }
  }
  return result;
}

Value Evaluator::run_builtin(const Builtin& builtin, const Value& self,
                             const CallArguments& arguments) {
  if (builtin.run == nullptr) throw TemplateFailure("'{}' is not supported", builtin.name);
  Call call{*this, arena_, builtin, self, arguments};
  const auto& parameters = builtin.parameters;
  if (parameters[0] == "*") return builtin.run(call);
  const auto count = static_cast<size_t>(
      std::find(parameters.begin(), parameters.end(), std::string_view()) - parameters.begin());
  fail_if(arguments.positional.size() > count, "'{}' takes at most {} arguments", builtin.name,
          count);
  std::copy(arguments.positional.begin(), arguments.positional.end(), call.arguments.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto* const found = std::find(parameters.begin(), parameters.end(), name);
    fail_if(found == parameters.end() || name.empty(), "'{}' takes no argument '{}'", builtin.name,
            shortened(name));
    Value& argument = call.arguments[static_cast<size_t>(found - parameters.begin())];
    fail_if(!argument.is_missing(), "the argument '{}' is passed twice", shortened(name));
    argument = value;
  }
  for (size_t i = 0; i < builtin.num_required; ++i) {
    if (call.has(i)) continue;
    throw TemplateFailure("'{}' needs the argument '{}'", builtin.name, parameters[i]);
  }
  return builtin.run(call);
}

Value Evaluator::call(const Value& callee, const CallArguments& arguments) {
  switch (callee.kind) {
    case Kind::kFunction:
      return run_builtin(*callee.function->builtin, callee.function->self, arguments);
    case Kind::kMacro:
      return call_macro(*callee.macro, arguments);
    case Kind::kLoop:
      return call_loop(*callee.loop, arguments);
    case Kind::kJoiner: {
      fail_if(!arguments.positional.empty() || !arguments.named.empty(),
              "a joiner takes no arguments");
      const bool first = callee.sequence->position++ == 0;
      return first ? view_string(arena_, "") : callee.sequence->items[0];
    }
    case Kind::kUndefined:
      throw_undefined(callee);
    default:
      throw TemplateFailure("'{}' object is not callable", type_name(callee));
  }
}

// Returns what Python's getattr finds, of the methods of this name; kMissing for nothing.
Value Evaluator::python_attribute(const Value& object, const Value& key, const Methods& methods) {
  const std::string_view name = key.text();
  if (object.is(Kind::kNamespace) && !name.starts_with('_')) {
    if (const Value* const found = find_key(arena_, *object.name_space, key)) return *found;
  }
  if (object.is(Kind::kLoop)) {
    const Value value = loop_attribute(*object.loop, name);
    if (!value.is_missing()) return value;
  }
  const Builtin* const method = find_of_kind(methods, object.kind);
  const bool is_unsafe = method != nullptr && method->is_unsafe;
  if (is_unsafe || (name.starts_with("__") && name.ends_with("__"))) {
    return new_undefined(arena_, fmt::format("access to attribute '{}' of '{}' object is unsafe",
                                             name, type_name(object)));
  }
  if (method == nullptr) return {};
  fail_if(method->run == nullptr, "'{}' of '{}' is not supported", name, type_name(object));
  Value function(Kind::kFunction);
  function.function = arena_.create(Function{.builtin = method, .self = object});
  return function;
}

Value Evaluator::get_attribute(const Value& object, const Value& key, const Methods& methods) {
  if (object.is(Kind::kUndefined)) throw_undefined(object);
  Value value = python_attribute(object, key, methods);
  if (value.is_missing()) value = python_item(arena_, object, key);
  return value.is_missing() ? missing_attribute(arena_, object, key) : value;
}

Value Evaluator::get_item(const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) throw_undefined(object);
  Value value = python_item(arena_, object, key);
  if (value.is_missing() && key.is_string()) {
    value = python_attribute(object, key, find_methods(key.text()));
  }
  return value.is_missing() ? missing_attribute(arena_, object, key) : value;
}

}  // namespace zeroth::data::jinja
