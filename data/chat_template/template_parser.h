// What the parsers of statements and of expressions share.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat_template/template_syntax.h"

namespace zeroth::data::jinja {

// The names that the statements of one scope use, without those of the scopes inside it. The
// evaluator looks a name up in the scopes from the inside out and in the context last. That is what
// Jinja's compiler does (jinja2/idtracking.py) but for one case: a name that a scope assigns before
// it reads it does not come from the context, even in a scope inside that reads it earlier.
struct NameUses {
  NameUses* outer = nullptr;
  Unassigned* result = nullptr;
  Stmt* function = nullptr;  // whose body it is
  std::set<uint32_t> known;
  std::vector<uint32_t> assigned_first;
};

// What surrounds what is being parsed.
struct Place {
  NameUses* names = nullptr;  // of the scope
  bool in_branch = false;     // of an `if` in the scope
  bool in_loop = false;       // of the same function
  bool in_for = false;        // of any function
  bool in_macro = false;      // or call block
};

struct Parser {
  explicit Parser(Template& into) : result(into), tokens(tokenize(into.source)) {
    for (const std::string& name : result.names) (void)variable(name);
  }

  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void fail_expected(std::string_view expected) const;
  // Counts a level of nesting; the caller takes it back. An error ends the parser.
  void enter_level();

  const Token& current() const { return tokens[at]; }
  const Token& following() const { return tokens[at + 1 < tokens.size() ? at + 1 : at]; }
  void advance() { at += at + 1 < tokens.size() ? 1 : 0; }
  bool is(TokenKind kind) const { return current().kind == kind; }
  // Look at a name or an operator with this text.
  bool is(std::string_view text) const {
    return (is(TokenKind::kName) || is(TokenKind::kOperator)) && current().text == text;
  }
  bool skip(std::string_view text) {
    const bool found = is(text);
    if (found) advance();
    return found;
  }
  void expect(std::string_view text);
  void expect(TokenKind kind);
  std::string take_name();

  uint32_t variable(const std::string& name);  // its index in Template::names
  void read(uint32_t variable);
  void assign(uint32_t variable);

  Template& result;
  std::map<std::string, uint32_t> variables;
  std::vector<Token> tokens;
  size_t at = 0;
  uint32_t depth = 0;
  Place place;
};

Expr* parse_expression(Parser& parser, bool with_condition = true);
// Parses one expression, or several with commas between them. Only parentheses can be empty.
Expr* parse_tuple(Parser& parser, bool with_condition = true, bool parenthesized = false);
// Parses filters after `subject`, which is null in a block. `begun`: without the first "|".
Expr* parse_filters(Parser& parser, Expr* subject, bool begun = false);
// Returns a string that several threads can use at once.
Value new_constant(Parser& parser, std::string_view text);
Expr* new_expr(Parser& parser, ExprKind kind, uint32_t offset, std::vector<Expr*> children = {},
               std::vector<Argument> arguments = {});

}  // namespace zeroth::data::jinja
