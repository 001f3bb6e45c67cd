// A chat template as a tree. Offsets are bytes of the source after its line breaks became "\n".
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat_template/template_value.h"

namespace zeroth::data::jinja {

enum class TokenKind : uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t offset = 0;
  std::string text;  // a string's characters after its escapes, a number's digits without "_"
};

// Returns the source with "\n" for every line break and without the last one, as Jinja reads it.
std::string normalize_newlines(std::string_view source);
// Returns the tokens of it; the last one is kEnd. Throws a TemplateFailure.
std::vector<Token> tokenize(std::string_view source);

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kTuple,
  kList,
  kDict,       // keys and values in turn
  kAttribute,  // as a target, of a namespace
  kItem,
  kSlice,  // of children[0] with start, stop and step, each of which can be null
  kCall,
  kFilter,  // of children[0], which is null for the innermost filter of a block
  kTest,
  kNot,
  kNegative,
  kAnd,
  kOr,
  kCompare,  // children[0] op children[1] op children[2] ...
  kBinary,
  kConcat,
  kCondition,  // test, value, other value (can be null)
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

// How templates write the operators, in the order above.
inline constexpr std::array<std::string_view, 15> kOperatorSymbols = {
    "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

struct Builtin;
struct Expr;

struct Argument {
  std::string name;  // empty for a positional one, "*" and "**" for what is unpacked
  Expr* value = nullptr;
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  Operator op = Operator::kAdd;
  uint32_t offset = 0;
  uint32_t variable = 0;  // of kName: index into Template::names
  Value constant;         // also the name of an attribute
  std::string name;       // of a variable, a filter or a test
  std::vector<Expr*> children;
  std::vector<Operator> ops;        // of kCompare
  std::vector<Argument> arguments;  // of kCall, kFilter and kTest
  // The filter or test; none if it is unknown. Of kAttribute, the methods of this name.
  std::vector<const Builtin*> builtins;
};

enum class StmtKind : uint8_t {
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,  // also a filter block, without a target
  kMacro,
  kCallBlock,
  kWith,
  kGeneration,
  kBreak,
  kContinue,
};

struct Stmt;
using Body = std::vector<Stmt*>;

// Indices of names that a scope assigns before it reads them: they start without a value there,
// even if the context has one (jinja2/idtracking.py).
using Unassigned = std::vector<uint32_t>;

struct Parameter {
  std::string name;
  uint32_t variable = 0;
  Expr* fallback = nullptr;  // its default
};

struct Stmt {
  StmtKind kind = StmtKind::kPrint;
  uint32_t offset = 0;
  Expr* value = nullptr;       // printed, iterated, assigned, called; test of kIf
  Expr* filter = nullptr;      // of kSetBlock; test of kFor
  std::vector<Expr*> targets;  // of kFor, kSet and kSetBlock one
  std::vector<Expr*> values;   // of kWith
  Body body;
  Body other;  // else; of kIf an `elif` is a statement here
  bool recursive = false;
  Unassigned unassigned, other_unassigned;
  // Of kMacro and kCallBlock.
  std::string name;
  uint32_t variable = 0;
  std::vector<Parameter> parameters;
  bool reads_caller = false, reads_kwargs = false, reads_varargs = false;
};

// Variables that Jinja itself assigns, by their indices in Template::names.
enum : uint32_t { kLoopVariable, kCallerVariable, kKwargsVariable, kVarargsVariable };

struct Template {
  std::string source;  // normalized
  Arena constants{size_t{64} << 20};
  std::deque<Expr> exprs;  // the tree refers to them
  std::deque<Stmt> stmts;
  std::vector<std::string> names = {"loop", "caller", "kwargs", "varargs"};  // of all variables
  Body body;
  Unassigned unassigned;
};

// Parses a normalized source. Throws a TemplateFailure.
void parse(Template& result);

}  // namespace zeroth::data::jinja
