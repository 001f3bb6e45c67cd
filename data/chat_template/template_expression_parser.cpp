#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/text/printable.h"
#include "data/chat_template/template_evaluator.h"
#include "data/chat_template/template_parser.h"

namespace zeroth::data::jinja {
namespace {

using ParseTerm = Expr* (*)(Parser& parser);

Expr* parse_unary(Parser& parser, bool with_filter);
Expr* parse_primary(Parser& parser);

std::vector<Argument> parse_arguments(Parser& parser) {
  std::vector<Argument> arguments;
  parser.expect("(");
  while (!parser.skip(")")) {
    if (!arguments.empty()) parser.expect(",");
    if (!arguments.empty() && parser.skip(")")) break;
    Argument argument;
    if (parser.is("*") || parser.is("**")) {
      argument.name = parser.current().text;
      parser.advance();
    } else if (parser.is(TokenKind::kName) && parser.following().kind == TokenKind::kOperator &&
               parser.following().text == "=") {
      argument.name = parser.take_name();
      parser.advance();
    }
    for (const Argument& other : arguments) {
      if (other.name.empty()) continue;
      const bool late = argument.name.empty() || other.name == "**";
      if (late) parser.fail("the order of the arguments is invalid");
      if (other.name == argument.name) {
        parser.fail(fmt::format("the argument '{}' is repeated", shortened(argument.name)));
      }
    }
    argument.value = parse_expression(parser);
    arguments.push_back(argument);
  }
  return arguments;
}

// Parses the items of a list, or the keys and values of a dict, and their end.
std::vector<Expr*> parse_items(Parser& parser, std::string_view end, bool with_values) {
  std::vector<Expr*> items;
  while (!parser.skip(end)) {
    if (!items.empty()) parser.expect(",");
    if (parser.skip(end)) break;
    items.push_back(parse_expression(parser));
    if (!with_values) continue;
    parser.expect(":");
    items.push_back(parse_expression(parser));
  }
  return items;
}

Expr* parse_call(Parser& parser, Expr* callee) {
  const uint32_t offset = parser.current().offset;
  return new_expr(parser, ExprKind::kCall, offset, {callee}, parse_arguments(parser));
}

Expr* parse_number(Parser& parser) {
  Expr* const expr = new_expr(parser, ExprKind::kConst, parser.current().offset);
  const std::string& text = parser.current().text;
  if (parser.is(TokenKind::kFloat)) {
    expr->constant = Value::of_float(std::strtod(text.c_str(), nullptr));
    if (std::isinf(expr->constant.real)) parser.fail("a float this large is not supported");
  } else if (text.size() > 1 && (text[1] | 0x20) == 'x') {
    int64_t value = 0;
    const auto result = std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
    if (result.ec != std::errc()) parser.fail("a number beyond 64 bits is not supported here");
    expr->constant = Value::of_int(value);
  } else {
    expr->constant = parse_integer(parser.result.constants, text);
  }
  parser.advance();
  return expr;
}

// Parses what follows an opening bracket: an index or a slice.
Expr* parse_subscript(Parser& parser, Expr* object, uint32_t offset) {
  std::vector<Expr*> children = {object};
  children.push_back(parser.is(":") ? nullptr : parse_expression(parser));
  const bool slice = parser.is(":");
  for (int bound = 0; slice && bound < 2; ++bound) {
    const bool present = parser.skip(":") && !parser.is(":") && !parser.is("]");
    children.push_back(present ? parse_expression(parser) : nullptr);
  }
  if (parser.is(",")) parser.fail("a comma in an index is not supported");
  parser.expect("]");
  return new_expr(parser, slice ? ExprKind::kSlice : ExprKind::kItem, offset, children);
}

Expr* parse_postfix(Parser& parser, Expr* expr) {
  while (true) {
    const uint32_t offset = parser.current().offset;
    if (parser.skip("[")) {
      expr = parse_subscript(parser, expr, offset);
    } else if (parser.is("(")) {
      expr = parse_call(parser, expr);
    } else if (!parser.skip(".")) {
      return expr;
    } else if (parser.is(TokenKind::kInteger)) {
      expr = new_expr(parser, ExprKind::kItem, offset, {expr, parse_number(parser)});
    } else {
      expr = new_expr(parser, ExprKind::kAttribute, offset, {expr});
      expr->constant = new_constant(parser, parser.take_name());
      expr->builtins = find_methods(expr->constant.text());
    }
  }
}

// Parses the name of a filter or a test.
Expr* parse_builtin(Parser& parser, ExprKind kind, Expr* subject) {
  const bool is_filter = kind == ExprKind::kFilter;
  Expr* const expr = new_expr(parser, kind, parser.current().offset, {subject});
  expr->name = parser.take_name();
  while (parser.skip(".")) expr->name += "." + parser.take_name();
  const Builtin* const builtin = is_filter ? find_filter(expr->name) : find_test(expr->name);
  if (builtin != nullptr) expr->builtins.push_back(builtin);
  // In a branch it is an error only when it is used.
  if (builtin == nullptr && !parser.place.in_branch) {
    throw TemplateFailure(expr->offset,
                          fmt::format("there is no {} named '{}'", is_filter ? "filter" : "test",
                                      shortened(expr->name)));
  }
  return expr;
}

Expr* parse_test(Parser& parser, Expr* subject) {
  const bool negated = parser.skip("not");
  Expr* const test = parse_builtin(parser, ExprKind::kTest, subject);
  const bool is_literal = parser.is(TokenKind::kString) || parser.is(TokenKind::kInteger) ||
                          parser.is(TokenKind::kFloat) || parser.is("[") || parser.is("{");
  const bool is_value =
      parser.is(TokenKind::kName) && !parser.is("else") && !parser.is("or") && !parser.is("and");
  if (parser.is("(")) {
    test->arguments = parse_arguments(parser);
  } else if (is_literal || is_value) {
    if (parser.is("is")) parser.fail("tests cannot be chained with 'is'");
    test->arguments.push_back({"", parse_postfix(parser, parse_primary(parser))});
  }
  return negated ? new_expr(parser, ExprKind::kNot, test->offset, {test}) : test;
}

Expr* parse_primary(Parser& parser) {
  const uint32_t offset = parser.current().offset;
  if (parser.is(TokenKind::kInteger) || parser.is(TokenKind::kFloat)) return parse_number(parser);
  if (parser.skip("[")) {
    return new_expr(parser, ExprKind::kList, offset, parse_items(parser, "]", false));
  }
  if (parser.skip("{")) {
    return new_expr(parser, ExprKind::kDict, offset, parse_items(parser, "}", true));
  }
  if (parser.skip("(")) {
    Expr* const expr = parse_tuple(parser, /*with_condition=*/true, /*parenthesized=*/true);
    parser.expect(")");
    return expr;
  }
  Expr* const expr = new_expr(parser, ExprKind::kConst, offset);
  if (parser.is(TokenKind::kString)) {
    std::string text;
    for (; parser.is(TokenKind::kString); parser.advance()) text += parser.current().text;
    expr->constant = new_constant(parser, text);
    return expr;
  }
  if (!parser.is(TokenKind::kName)) parser.fail_expected("an expression");
  const std::string name = parser.take_name();
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    expr->constant = Value::of_bool(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    expr->constant = Value::none();
  } else {
    expr->kind = ExprKind::kName;
    expr->name = name;
    expr->variable = parser.variable(name);
    parser.read(expr->variable);
  }
  return expr;
}

Expr* parse_unary(Parser& parser, bool with_filter) {
  parser.enter_level();
  const uint32_t offset = parser.current().offset;
  Expr* expr = nullptr;
  if (parser.skip("-")) {
    expr = new_expr(parser, ExprKind::kNegative, offset, {parse_unary(parser, false)});
  } else if (parser.is("+")) {
    parser.fail("a sign '+' is not supported");
  } else {
    expr = parse_primary(parser);
  }
  expr = parse_postfix(parser, expr);
  while (with_filter) {
    if (parser.is("|")) {
      expr = parse_filters(parser, expr);
    } else if (parser.skip("is")) {
      expr = parse_test(parser, expr);
    } else if (parser.is("(")) {
      expr = parse_call(parser, expr);
    } else {
      break;
    }
  }
  --parser.depth;
  return expr;
}

// Moves over one of the operators from `first` to `last`, and stores it.
bool skip_operator(Parser& parser, Operator first, Operator last, Operator& op) {
  for (auto i = static_cast<size_t>(first); i <= static_cast<size_t>(last); ++i) {
    op = static_cast<Operator>(i);
    if (parser.skip(kOperatorSymbols[i])) return true;
  }
  return false;
}

Expr* parse_binary(Parser& parser, Operator first, Operator last, ParseTerm parse_term) {
  Expr* left = parse_term(parser);
  for (Operator op{}; skip_operator(parser, first, last, op);) {
    left = new_expr(parser, ExprKind::kBinary, left->offset, {left, parse_term(parser)});
    left->op = op;
  }
  return left;
}

// Parses terms with the same word or sign between them.
Expr* parse_series(Parser& parser, ExprKind kind, ParseTerm parse_term,
                   std::string_view separator) {
  std::vector<Expr*> terms = {parse_term(parser)};
  while (parser.skip(separator)) terms.push_back(parse_term(parser));
  return terms.size() == 1 ? terms[0] : new_expr(parser, kind, terms[0]->offset, terms);
}

Expr* parse_power(Parser& parser) {
  return parse_binary(parser, Operator::kPower, Operator::kPower,
                      [](Parser& inner) { return parse_unary(inner, true); });
}

Expr* parse_product(Parser& parser) {
  return parse_binary(parser, Operator::kMultiply, Operator::kModulo, parse_power);
}

Expr* parse_concat(Parser& parser) {
  return parse_series(parser, ExprKind::kConcat, parse_product, "~");
}

Expr* parse_sum(Parser& parser) {
  return parse_binary(parser, Operator::kAdd, Operator::kSubtract, parse_concat);
}

Expr* parse_compare(Parser& parser) {
  std::vector<Expr*> terms = {parse_sum(parser)};
  std::vector<Operator> ops;
  while (true) {
    Operator op = Operator::kNotIn;
    const bool negated = parser.is("not") && parser.following().text == "in";
    if (negated) {
      parser.advance();
      parser.advance();
    } else if (!skip_operator(parser, Operator::kEqual, Operator::kIn, op)) {
      break;
    }
    ops.push_back(op);
    terms.push_back(parse_sum(parser));
  }
  if (ops.empty()) return terms[0];
  Expr* const expr = new_expr(parser, ExprKind::kCompare, terms[0]->offset, terms);
  expr->ops = std::move(ops);
  return expr;
}

Expr* parse_not(Parser& parser) {
  const uint32_t offset = parser.current().offset;
  if (!parser.skip("not")) return parse_compare(parser);
  parser.enter_level();
  Expr* const expr = new_expr(parser, ExprKind::kNot, offset, {parse_not(parser)});
  --parser.depth;
  return expr;
}

Expr* parse_and(Parser& parser) {
  return parse_series(parser, ExprKind::kAnd, parse_not, "and");
}

Expr* parse_or(Parser& parser) {
  return parse_series(parser, ExprKind::kOr, parse_and, "or");
}

}  // namespace

Expr* parse_expression(Parser& parser, bool with_condition) {
  if (!with_condition) return parse_or(parser);
  parser.enter_level();
  const bool in_branch = parser.place.in_branch;
  Expr* expr = parse_or(parser);
  while (parser.skip("if")) {
    parser.place.in_branch = true;
    Expr* const test = parse_or(parser);
    Expr* const other = parser.skip("else") ? parse_expression(parser) : nullptr;
    expr = new_expr(parser, ExprKind::kCondition, expr->offset, {test, expr, other});
  }
  parser.place.in_branch = in_branch;
  --parser.depth;
  return expr;
}

Expr* parse_tuple(Parser& parser, bool with_condition, bool parenthesized) {
  const uint32_t offset = parser.current().offset;
  std::vector<Expr*> items;
  bool is_tuple = false;
  while (!parser.is(TokenKind::kPrintEnd) && !parser.is(TokenKind::kBlockEnd) && !parser.is(")")) {
    items.push_back(parse_expression(parser, with_condition));
    if (!parser.skip(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return items[0];
  if (!is_tuple && !parenthesized) parser.fail_expected("an expression");
  return new_expr(parser, ExprKind::kTuple, offset, items);
}

Expr* parse_filters(Parser& parser, Expr* subject, bool begun) {
  while (begun || parser.skip("|")) {
    begun = false;
    subject = parse_builtin(parser, ExprKind::kFilter, subject);
    if (parser.is("(")) subject->arguments = parse_arguments(parser);
  }
  return subject;
}

Value new_constant(Parser& parser, std::string_view text) {
  const Value value = copy_string(parser.result.constants, text);
  (void)value.string->length();  // it counts at its first use
  return value;
}

Expr* new_expr(Parser& parser, ExprKind kind, uint32_t offset, std::vector<Expr*> children,
               std::vector<Argument> arguments) {
  Expr& expr = parser.result.exprs.emplace_back();
  expr.kind = kind;
  expr.offset = offset;
  expr.children = std::move(children);
  expr.arguments = std::move(arguments);
  return &expr;
}

}  // namespace zeroth::data::jinja
