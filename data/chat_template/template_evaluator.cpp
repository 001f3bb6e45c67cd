// Execution of statements, loops and macros.
#include "data/chat_template/template_evaluator.h"

#include <algorithm>

#include "base/text/printable.h"

namespace zeroth::data::jinja {

Evaluator::Evaluator(const Template& source, Arena& arena, const Context& context)
    : template_(source), arena_(arena), context_(context) {
  scope_ = new_scope(nullptr, {});
  for (size_t i = 0; i < source.names.size(); ++i) {
    Value& value = scope_->values[i];
    for (const auto& [name, variable] : context.variables) {
      if (name == source.names[i]) value = variable;
    }
    const Builtin* const global = value.is_missing() ? find_global(source.names[i]) : nullptr;
    if (global == nullptr) continue;
    value = Value(Kind::kFunction);
    value.function = arena.create(Function{.builtin = global, .self = {}});
  }
}

void Evaluator::enter_level() {
  constexpr int kMaxLevels = 1000;  // nested statements and expressions of all active calls
  if (++levels_ <= kMaxLevels) return;
  throw TemplateFailure("nested deeper than the limit of {} levels", kMaxLevels);
}

void Evaluator::render(TextBuilder& out) {
  out_ = &out;
  scope_ = new_scope(scope_, template_.unassigned);
  execute(template_.body);
}

Scope* Evaluator::new_scope(Scope* outer, const Unassigned& unassigned) {
  auto* const values = static_cast<Value*>(arena_.allocate(template_.names.size() * sizeof(Value)));
  Scope* const scope = arena_.create(Scope{.outer = outer, .values = values});
  reset_scope(*scope, unassigned);
  return scope;
}

void Evaluator::reset_scope(Scope& scope, const Unassigned& unassigned) const {
  arena_.charge(template_.names.size() / kBytesPerStep);
  std::uninitialized_fill_n(scope.values, template_.names.size(), Value());
  for (const uint32_t variable : unassigned) scope.values[variable].kind = Kind::kUnassigned;
}

void Evaluator::execute(const Body& body) {
  enter_level();
  for (const Stmt* const statement : body) {
    arena_.charge(1);
    execute(*statement);
    if (flow_ != Flow::kNormal) break;
  }
  --levels_;
}

void Evaluator::execute(const Stmt& statement) {
  offset_ = statement.offset;
  switch (statement.kind) {
    case StmtKind::kPrint:
      return print(*statement.value);
    case StmtKind::kIf:
      return execute_if(statement);
    case StmtKind::kFor:
      return run_loop(statement, evaluate(*statement.value), scope_, 0);
    case StmtKind::kSet:
      return assign(*statement.targets[0], evaluate(*statement.value));
    case StmtKind::kSetBlock:
    case StmtKind::kWith:
      return execute_inner(statement);
    case StmtKind::kMacro:
      scope_->values[statement.variable] = new_macro(statement);
      return;
    case StmtKind::kCallBlock:
      return execute_call_block(statement);
    case StmtKind::kGeneration:
      return execute_generation(statement);
    case StmtKind::kBreak:
      flow_ = Flow::kBreak;
      return;
    case StmtKind::kContinue:
      flow_ = Flow::kContinue;
  }
}

void Evaluator::print(const Expr& expr) {
  const Value value = evaluate(expr);
  offset_ = expr.offset;
  const size_t begin = out_->size();
  append_str(*out_, value);
  out_->mark_since(begin, message_);
}

void Evaluator::execute_if(const Stmt& statement) {
  if (truth(evaluate(*statement.value))) return execute(statement.body);
  for (const Stmt* const branch : statement.other) {
    if (branch->value != nullptr && !truth(evaluate(*branch->value))) continue;
    return execute(branch->body);
  }
}

void Evaluator::execute_generation(const Stmt& statement) {
  TextBuilder marked(arena_);
  marked.append(call_macro(*new_macro(statement).macro, {}));
  marked.mark_generated();
  out_->append(marked.build());
}

void Evaluator::run_loop(const Stmt& statement, const Value& items, Scope* around, int64_t depth0) {
  Value variable(Kind::kLoop);
  Loop& loop = *arena_.create(Loop{.statement = &statement, .scope = around, .depth0 = depth0});
  variable.loop = &loop;
  const std::vector<Value> all = collect(arena_, items);
  loop.items = {arena_.copy(all.data(), all.size()), all.size()};
  if (statement.filter != nullptr) loop.filter_scope = new_scope(around, {});
  if (statement.filter == nullptr) loop.length = std::ssize(all);
  Scope* const outer = scope_;
  const SourceId outer_message = message_;
  bool completed = false;
  scope_ = new_scope(around, {});
  for (Value item; next_item(loop, item);) {
    ++loop.index0;
    loop.previous = std::exchange(loop.current, item);
    reset_scope(*scope_, statement.unassigned);
    scope_->values[kLoopVariable] = variable;
    assign(*statement.targets[0], item);
    const bool is_message = item.is(Kind::kDict) && (item.source & kMessage) != 0;
    message_ = is_message ? item.source : outer_message;
    execute(statement.body);
    completed |= flow_ == Flow::kNormal;
    if (std::exchange(flow_, Flow::kNormal) == Flow::kBreak) break;
  }
  message_ = outer_message;
  // As in Jinja, `else` also runs after a loop that `break` or `continue` ended each time.
  if (!completed && !statement.other.empty()) {
    scope_ = new_scope(around, statement.other_unassigned);
    execute(statement.other);
  }
  scope_ = outer;
}

// Stores the next item that the loop's filter chooses; returns false at the end.
bool Evaluator::next_item(Loop& loop, Value& item) {
  item = std::exchange(loop.following, {});
  Scope* const outer = scope_;
  while (item.is_missing() && loop.position < loop.items.size) {
    const Value& next = loop.items.items[loop.position++];
    if (loop.filter_scope != nullptr) {
      scope_ = loop.filter_scope;
      assign(*loop.statement->targets[0], next);
      if (!truth(evaluate(*loop.statement->filter))) continue;
    }
    item = next;
  }
  scope_ = outer;
  return !item.is_missing();
}

Value Evaluator::loop_attribute(Loop& loop, std::string_view name) {
  const auto following = [&] {
    Value item;
    if (next_item(loop, item)) loop.following = item;
    return item;
  };
  // Chooses the items after this one at once, as Jinja does for the length.
  const auto length = [&] {
    if (loop.length >= 0) return loop.length;
    std::vector<Value> rest;
    for (Value item; next_item(loop, item);) rest.push_back(item);
    loop.items = {arena_.copy(rest.data(), rest.size()), rest.size()};
    loop.position = 0;
    loop.filter_scope = nullptr;
    return loop.length = loop.index0 + 1 + std::ssize(rest);
  };
  const auto neighbor = [&](const Value& item) {
    if (item.is_missing()) return new_undefined(arena_, "there is no such item of the loop");
    // Jinja has a new tuple here.
    if (loop.statement->filter == nullptr || !item.is_list()) return item;
    throw TemplateFailure("'{}' of a loop with a filter is not supported", name);
  };
  if (name == "index0") return Value::of_int(loop.index0);
  if (name == "index") return Value::of_int(loop.index0 + 1);
  if (name == "first") return Value::of_bool(loop.index0 == 0);
  if (name == "last") return Value::of_bool(following().is_missing());
  if (name == "length") return Value::of_int(length());
  if (name == "revindex") return Value::of_int(length() - loop.index0);
  if (name == "revindex0") return Value::of_int(length() - loop.index0 - 1);
  if (name == "depth0") return Value::of_int(loop.depth0);
  if (name == "depth") return Value::of_int(loop.depth0 + 1);
  if (name == "previtem") return neighbor(loop.previous);
  if (name == "nextitem") return neighbor(following());
  return {};
}

// Returns what `run` writes.
template <typename Run>
Value Evaluator::render_call(const Run& run) {
  constexpr int kMaxCalls = 256;  // of macros and recursive loops in each other
  if (++calls_ > kMaxCalls) throw TemplateFailure("calls are nested deeper than {}", kMaxCalls);
  TextBuilder buffer(arena_);
  TextBuilder* const out = std::exchange(out_, &buffer);
  Scope* const scope = scope_;
  run();
  scope_ = scope;
  out_ = out;
  --calls_;
  return buffer.build();
}

// Renders the body of a recursive loop once more.
Value Evaluator::call_loop(const Loop& loop, const CallArguments& arguments) {
  fail_if(!loop.statement->recursive, "a loop that is called has to be marked 'recursive'");
  fail_if(arguments.positional.size() != 1 || !arguments.named.empty(),
          "a recursive loop takes one argument");
  return render_call(
      [&] { run_loop(*loop.statement, arguments.positional[0], loop.scope, loop.depth0 + 1); });
}

// Runs a statement with a scope of its own: `with`, a set block, or a filter block, which has no
// target.
void Evaluator::execute_inner(const Stmt& statement) {
  const bool with = statement.kind == StmtKind::kWith;
  const std::vector<Value> values = evaluate_all(statement.values);
  Scope* const around = std::exchange(scope_, new_scope(scope_, statement.unassigned));
  TextBuilder buffer(arena_);
  TextBuilder* const out = std::exchange(out_, with ? out_ : &buffer);
  for (size_t i = 0; i < values.size(); ++i) assign(*statement.targets[i], values[i]);
  execute(statement.body);
  Value text = buffer.build();
  const bool completed = flow_ == Flow::kNormal && !with;
  if (completed && statement.filter) text = evaluate_filters(*statement.filter, text);
  scope_ = around;
  out_ = out;
  if (completed && statement.targets.empty()) append_str(*out_, text);
  if (completed && !statement.targets.empty()) assign(*statement.targets[0], text);
}

void Evaluator::assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::kName) {
    scope_->values[target.variable] = value;
    return;
  }
  if (target.kind == ExprKind::kAttribute) {
    const Value object = evaluate_name(*target.children[0]);
    offset_ = target.offset;
    fail_if(!object.is(Kind::kNamespace),
            "cannot assign an attribute of '{}', which is no namespace",
            shortened(target.children[0]->name));
    return set_attribute(*object.name_space, target.constant, value);
  }
  const std::vector<Value> items = collect(arena_, value);
  fail_if(items.size() != target.children.size(), "cannot unpack {} values into {} variables",
          items.size(), target.children.size());
  for (size_t i = 0; i < items.size(); ++i) assign(*target.children[i], items[i]);
}

void Evaluator::set_attribute(Dict& attributes, const Value& name, const Value& value) {
  // A macro would outlive the variables of a loop, which Jinja prints as "missing" then.
  fail_if(value.is(Kind::kMacro), "a macro as an attribute of a namespace is not supported");
  if (const Value* const found = find_key(arena_, attributes, name)) {
    *const_cast<Value*>(found) = value;
    return;
  }
  std::vector<Pair> pairs(attributes.begin(), attributes.end());
  pairs.push_back({name, value});
  attributes = {arena_.copy(pairs.data(), pairs.size()), pairs.size()};
}

Value Evaluator::new_macro(const Stmt& statement) {
  Value value(Kind::kMacro);
  value.macro = arena_.create(Macro{.statement = &statement, .scope = scope_});
  return value;
}

void Evaluator::execute_call_block(const Stmt& statement) {
  const Value callee = evaluate(*statement.value->children[0]);
  CallArguments arguments = evaluate_arguments(*statement.value);
  for (const auto& [name, value] : arguments.named) {
    if (name == "caller") throw TemplateFailure("the argument 'caller' is passed twice");
  }
  arguments.named.emplace_back("caller", new_macro(statement));
  offset_ = statement.offset;
  append_str(*out_, call(callee, arguments));
}

Value Evaluator::call_macro(const Macro& macro, const CallArguments& arguments) {
  return render_call([&] {
    scope_ = new_scope(macro.scope, macro.statement->unassigned);
    bind_macro(*macro.statement, arguments, scope_->values);
    execute(macro.statement->body);
  });
}

// Assigns the parameters of a macro, and the variables that Jinja adds if the body reads them.
void Evaluator::bind_macro(const Stmt& macro, const CallArguments& arguments, Value* values) {
  const std::vector<Value>& positional = arguments.positional;
  const size_t count = macro.parameters.size();
  auto named = arguments.named;
  const auto take = [&](std::string_view name) {
    const auto found = std::find_if(named.begin(), named.end(),
                                    [&](const auto& argument) { return argument.first == name; });
    if (found == named.end()) return Value();
    const Value value = found->second;
    named.erase(found);
    return value;
  };
  for (size_t i = 0; i < count; ++i) {
    const Parameter& parameter = macro.parameters[i];
    Value value = i < positional.size() ? positional[i] : take(parameter.name);
    if (value.is_missing()) value.kind = Kind::kUnassigned;
    values[parameter.variable] = value;
  }
  if (macro.reads_caller) {
    Value caller = take("caller");
    if (caller.is_missing() || caller.is(Kind::kNone)) {
      caller = new_undefined(arena_, "no caller is defined");
    }
    values[kCallerVariable] = caller;
  }
  if (macro.reads_kwargs) {
    std::vector<Pair> pairs;
    for (const auto& [name, value] : named) pairs.push_back({copy_string(arena_, name), value});
    values[kKwargsVariable] = new_dict(arena_, pairs);
  } else if (!named.empty()) {
    throw TemplateFailure("macro '{}' takes no argument '{}'", shortened(macro.name),
                          shortened(named.front().first));
  }
  if (macro.reads_varargs) {
    const auto rest =
        positional.begin() + static_cast<ptrdiff_t>(std::min(count, positional.size()));
    values[kVarargsVariable] = new_tuple(arena_, std::vector<Value>(rest, positional.end()));
  } else if (positional.size() > count) {
    throw TemplateFailure("macro '{}' takes not more than {} arguments", shortened(macro.name),
                          count);
  }
  for (const Parameter& parameter : macro.parameters) {
    if (parameter.fallback == nullptr || !values[parameter.variable].is(Kind::kUnassigned))
      continue;
    const Value value = evaluate(*parameter.fallback);
    values[parameter.variable] = value;
  }
}

}  // namespace zeroth::data::jinja
