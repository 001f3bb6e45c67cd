// Statements; template_expression_parser.cpp parses expressions.
#include "data/chat_template/template_parser.h"

#include <algorithm>
#include <array>
#include <deque>

#include "base/text/printable.h"
#include "data/chat_template/template_operations.h"

namespace zeroth::data::jinja {
namespace {

constexpr std::array<std::string_view, 7> kUnsupported = {
    "include", "import", "from", "extends", "block", "autoescape", "print"};

class StatementParser : private Parser {
 public:
  using Parser::Parser;

  void run() {
    open_scope(result.unassigned);
    result.body = parse_body({});
    for (const NameUses& scope : scopes_) {
      for (const uint32_t name : scope.assigned_first) {
        bool known = false;
        for (const NameUses* outer = scope.outer; outer != nullptr; outer = outer->outer) {
          known |= outer->known.contains(name);
        }
        if (!known) scope.result->push_back(name);
      }
    }
  }

 private:
  using Names = std::vector<std::string_view>;

  // Begins a scope inside the current one.
  void open_scope(Unassigned& unassigned, Stmt* function = nullptr) {
    NameUses& inner = scopes_.emplace_back();
    inner.outer = place.names;
    inner.result = &unassigned;
    inner.function = function;
    place.names = &inner;
    place.in_branch = false;
  }

  // Makes a statement and moves over its name.
  Stmt* begin(StmtKind kind) {
    Stmt& statement = result.stmts.emplace_back();
    statement.kind = kind;
    statement.offset = current().offset;
    advance();
    return &statement;
  }

  // Parses until a tag of one of these names, or until the end if there is none.
  Body parse_body(const Names& ends) {
    enter_level();
    Body body;
    while (!is(TokenKind::kEnd)) {
      if (is(TokenKind::kData)) {
        body.push_back(begin(StmtKind::kPrint));
        body.back()->value = new_expr(*this, ExprKind::kConst, body.back()->offset);
        body.back()->value->constant = new_constant(*this, tokens[at - 1].text);
      } else if (is(TokenKind::kPrintBegin)) {
        body.push_back(begin(StmtKind::kPrint));
        body.back()->value = parse_tuple(*this);
        expect(TokenKind::kPrintEnd);
      } else {
        advance();  // over the begin of the tag
        const auto ends_here = [&](std::string_view end) { return is(end); };
        if (std::any_of(ends.begin(), ends.end(), ends_here)) {
          --depth;
          return body;
        }
        parse_statement(body);
        expect(TokenKind::kBlockEnd);
      }
    }
    if (!ends.empty()) fail(fmt::format("the template ends before the tag '{}'", ends.back()));
    return body;
  }

  Body parse_block(const Names& ends) {
    skip(":");
    expect(TokenKind::kBlockEnd);
    return parse_body(ends);
  }

  Body parse_last_block(std::string_view end) {
    Body body = parse_block({end});
    advance();
    return body;
  }

  void parse_statement(Body& body) {
    if (!is(TokenKind::kName)) fail("the name of a tag is missing");
    const std::string name = current().text;
    if (std::find(kUnsupported.begin(), kUnsupported.end(), name) != kUnsupported.end()) {
      fail(fmt::format("the tag '{}' is not supported", name));
    }
    const Place around = place;
    body.push_back(parse_named(name));
    place = around;
  }

  Stmt* parse_named(const std::string& name) {
    if (name == "for") return parse_for(begin(StmtKind::kFor));
    if (name == "if") return parse_if(begin(StmtKind::kIf));
    if (name == "set") return parse_set(begin(StmtKind::kSet));
    if (name == "macro") return parse_macro(begin(StmtKind::kMacro));
    if (name == "call") return parse_call_block(begin(StmtKind::kCallBlock));
    if (name == "filter") return parse_filter_block(begin(StmtKind::kSetBlock));
    if (name == "with") return parse_with(begin(StmtKind::kWith));
    if (name == "generation") {
      Stmt* const statement = begin(StmtKind::kGeneration);
      open_scope(statement->unassigned, statement);
      return parse_function(statement, "endgeneration");
    }
    if (name == "break" || name == "continue") {
      if (!place.in_loop) fail("'break' and 'continue' need a loop around them");
      return begin(name == "break" ? StmtKind::kBreak : StmtKind::kContinue);
    }
    fail(fmt::format("unknown tag '{}'", shortened(name)));
  }

  std::string take_target_name() {
    for (const char* const name : {"true", "True", "false", "False", "none", "None"}) {
      if (is(name)) fail(fmt::format("'{}' cannot be assigned to", name));
    }
    return take_name();
  }

  // Throws for a name that Jinja assigns itself: in a macro it would take the value of the caller's
  // argument or this one.
  void check_assignable(uint32_t name) const {
    if (place.in_macro && name >= kCallerVariable && name <= kVarargsVariable) {
      fail(fmt::format("assigning to '{}' in a macro is not supported", result.names[name]));
    }
  }

  // Parses names to which a statement assigns, without a note of them; `with_namespace`: also ns.x.
  Expr* parse_target(bool with_namespace = false) {
    const uint32_t offset = current().offset;
    std::vector<Expr*> items;
    bool is_tuple = false;
    while (true) {
      Expr* const item = new_expr(*this, ExprKind::kName, current().offset);
      items.push_back(item);
      if (skip("(")) {
        *item = *parse_target(with_namespace);
        expect(")");
      } else {
        item->name = take_target_name();
        item->variable = variable(item->name);
        if (with_namespace && skip(".")) {
          items.back() = new_expr(*this, ExprKind::kAttribute, item->offset, {item});
          items.back()->constant = new_constant(*this, take_name());
        } else if (place.in_for && item->variable == kLoopVariable) {
          fail("the variable 'loop' cannot be assigned to in a loop");
        } else {
          check_assignable(item->variable);
        }
      }
      if (!skip(",")) break;
      is_tuple = true;
      if (is(TokenKind::kBlockEnd) || is(")")) break;
    }
    return is_tuple ? new_expr(*this, ExprKind::kTuple, offset, items) : items[0];
  }

  // Notes what the current scope assigns, or has from the start.
  void note_target(const Expr& target, bool from_start) {
    if (target.kind == ExprKind::kName && from_start) place.names->known.insert(target.variable);
    if (target.kind == ExprKind::kName && !from_start) assign(target.variable);
    if (target.kind == ExprKind::kAttribute) return read(target.children[0]->variable);
    for (const Expr* const child : target.children) note_target(*child, from_start);
  }

  Stmt* parse_for(Stmt* loop) {
    const Place around = place;
    place.in_for = true;
    loop->targets.push_back(parse_target());
    expect("in");
    loop->value = parse_tuple(*this, /*with_condition=*/false);
    if (skip("if")) {
      open_scope(loop->unassigned);
      note_target(*loop->targets[0], /*from_start=*/true);
      loop->filter = parse_expression(*this);
      place.names = around.names;
    }
    loop->recursive = skip("recursive");
    open_scope(loop->unassigned);
    place.names->known.insert(kLoopVariable);
    note_target(*loop->targets[0], /*from_start=*/true);
    place.in_loop = true;
    loop->body = parse_block({"else", "endfor"});
    const bool has_else = is("else");
    advance();
    if (!has_else) return loop;
    place.names = around.names;
    open_scope(loop->other_unassigned);
    place.in_loop = around.in_loop && !loop->recursive;
    loop->other = parse_last_block("endfor");
    return loop;
  }

  Stmt* parse_if(Stmt* first) {
    place.in_branch = true;
    Stmt* branch = first;
    while (true) {
      branch->value = parse_tuple(*this, /*with_condition=*/false);
      branch->body = parse_block({"elif", "else", "endif"});
      if (is("endif")) break;
      // All branches are children of the first one, so that a long chain is not deep.
      const bool is_else = is("else");
      branch = begin(StmtKind::kIf);
      first->other.push_back(branch);
      if (!is_else) continue;
      branch->body = parse_block({"endif"});
      break;
    }
    advance();
    return first;
  }

  Stmt* parse_set(Stmt* statement) {
    const Place around = place;
    Expr* const target = parse_target(/*with_namespace=*/true);
    statement->targets.push_back(target);
    if (skip("=")) {
      statement->value = parse_tuple(*this);
    } else {
      statement->kind = StmtKind::kSetBlock;
      open_scope(statement->unassigned);
      const size_t begin = at;
      statement->filter = parse_filters(*this, nullptr);
      // Jinja knows a variable here only if another statement uses it.
      if (!place.names->known.empty()) {
        at = begin;
        fail("a variable in the filter of a set block is not supported");
      }
      statement->body = parse_last_block("endset");
    }
    place = around;
    note_target(*target, /*from_start=*/false);
    return statement;
  }

  Stmt* parse_with(Stmt* statement) {
    while (!is(TokenKind::kBlockEnd)) {
      if (!statement->targets.empty()) expect(",");
      statement->targets.push_back(parse_target());
      expect("=");
      statement->values.push_back(parse_expression(*this));
    }
    open_scope(statement->unassigned);
    for (const Expr* const target : statement->targets) note_target(*target, true);
    statement->body = parse_last_block("endwith");
    return statement;
  }

  void parse_signature(std::vector<Parameter>& parameters) {
    expect("(");
    while (!skip(")")) {
      if (!parameters.empty()) expect(",");
      Parameter parameter;
      parameter.name = take_target_name();
      parameter.variable = variable(parameter.name);
      check_assignable(parameter.variable);
      place.names->known.insert(parameter.variable);
      if (skip("=")) {
        parameter.fallback = parse_expression(*this);
      } else if (!parameters.empty() && parameters.back().fallback != nullptr) {
        fail("a parameter without a default follows one with a default");
      }
      parameters.push_back(parameter);
    }
    // Jinja does not assign them in time for a default.
    const Stmt& function = *place.names->function;
    if (function.reads_caller || function.reads_kwargs || function.reads_varargs) {
      fail("a default that reads a variable of Jinja itself is not supported");
    }
  }

  // Parses the body of what is called: no loop around it is its own.
  Stmt* parse_function(Stmt* statement, std::string_view end) {
    place.in_loop = false;
    statement->body = parse_last_block(end);
    return statement;
  }

  Stmt* parse_macro(Stmt* statement) {
    statement->name = take_target_name();
    statement->variable = variable(statement->name);
    assign(statement->variable);
    open_scope(statement->unassigned, statement);
    place.in_macro = true;
    parse_signature(statement->parameters);
    return parse_function(statement, "endmacro");
  }

  Stmt* parse_call_block(Stmt* statement) {
    const Place around = place;
    open_scope(statement->unassigned, statement);
    place.in_macro = true;
    const Place inside = place;
    if (is("(")) parse_signature(statement->parameters);
    place = around;
    statement->value = parse_expression(*this);
    if (statement->value->kind != ExprKind::kCall) fail("a call is expected");
    place = inside;
    return parse_function(statement, "endcall");
  }

  // The scope of the block and the one around it both know the names in the filter.
  Stmt* parse_filter_block(Stmt* statement) {
    NameUses* const outer = place.names;
    open_scope(statement->unassigned);
    statement->filter = parse_filters(*this, nullptr, /*begun=*/true);
    outer->known.insert(place.names->known.begin(), place.names->known.end());
    statement->body = parse_last_block("endfilter");
    return statement;
  }

  std::deque<NameUses> scopes_;
};

}  // namespace

void Parser::fail(const std::string& message) const {
  throw TemplateFailure(current().offset, message);
}

void Parser::fail_expected(std::string_view expected) const {
  fail(fmt::format("expected {}, found {}", expected, "'" + shortened(current().text) + "'"));
}

void Parser::enter_level() {
  if (++depth > uint32_t{kMaxDepth})
    fail(fmt::format("nested deeper than the limit of {}", kMaxDepth));
}

void Parser::expect(std::string_view text) {
  if (!skip(text)) fail_expected(fmt::format("'{}'", text));
}

void Parser::expect(TokenKind kind) {
  if (!is(kind)) fail_expected("the end of the tag");
  advance();
}

std::string Parser::take_name() {
  if (!is(TokenKind::kName)) fail_expected("a name");
  std::string name = current().text;
  advance();
  return name;
}

uint32_t Parser::variable(const std::string& name) {
  const auto next = static_cast<uint32_t>(variables.size());
  const auto [found, added] = variables.try_emplace(name, next);
  if (added && next >= result.names.size()) result.names.push_back(name);
  return found->second;
}

void Parser::read(uint32_t variable) {
  place.names->known.insert(variable);
  for (const NameUses* scope = place.names; scope != nullptr; scope = scope->outer) {
    if (scope->function == nullptr) continue;
    scope->function->reads_caller |= variable == kCallerVariable;
    scope->function->reads_kwargs |= variable == kKwargsVariable;
    scope->function->reads_varargs |= variable == kVarargsVariable;
  }
}

void Parser::assign(uint32_t variable) {
  const bool first = place.names->known.insert(variable).second;
  if (first && !place.in_branch) place.names->assigned_first.push_back(variable);
}

void parse(Template& result) {
  StatementParser(result).run();
}

}  // namespace zeroth::data::jinja
