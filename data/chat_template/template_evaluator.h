// Evaluation of a chat template: the evaluator, its builtins, and the operations of Python on
// values. All of them throw a TemplateFailure where Python or Jinja raises an exception.
#pragma once

#include <array>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat_template/template_operations.h"
#include "data/chat_template/template_syntax.h"

namespace zeroth::data::jinja {

inline constexpr size_t kMaxParameters = 4;
class Evaluator;
struct Builtin;

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

// A call of a builtin. Its arguments are in the order of the parameters, kMissing where none is
// passed.
struct Call {
  Evaluator& evaluator;
  Arena& arena;
  const Builtin& builtin;
  const Value& self;  // the subject of a filter or a test, the object of a method
  const CallArguments& all;
  std::array<Value, kMaxParameters> arguments = {};

  const Value& operator[](size_t i) const { return arguments[i]; }
  bool has(size_t i) const { return !arguments[i].is_missing(); }
  bool has_value(size_t i) const { return has(i) && !arguments[i].is(Kind::kNone); }
  bool flag(size_t i) const;  // its truth; false if it is missing
  int64_t integer(size_t i, int64_t missing) const;
  std::string_view string(size_t i) const;
  Value text() const;  // str(self)
};

// A filter, a test, a method or a global function. A parameter whose name begins with "/" cannot be
// passed by name. With the only parameter "*" only Call::all has the arguments.
struct Builtin {
  std::string_view name;
  std::array<std::string_view, kMaxParameters> parameters = {};
  size_t num_required = 0;
  Value (*run)(const Call& call) = nullptr;  // null for what is not supported
  uint32_t kinds = 0;                        // that have the method, or pass the test
  bool is_unsafe = false;                    // Jinja's sandbox does not let a template call it
};

// Returns a bit for each kind.
template <typename... Kinds>
constexpr uint32_t kind_bits(Kinds... kinds) {
  return ((uint32_t{1} << static_cast<uint32_t>(kinds)) | ...);
}

using Builtins = std::vector<Builtin>;
using Methods = std::vector<const Builtin*>;

// Return null if there is none of this name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_global(std::string_view name);
// Returns the methods of this name of all kinds.
const Methods& find_methods(std::string_view name);
// Adds a row without a function for each of the words, which Python or Jinja has.
void add_unsupported(Builtins& builtins, std::string_view words, uint32_t kinds = 0,
                     bool is_unsafe = false);
const Builtins& filters();
const Builtins& list_filters();

struct Function {
  const Builtin* builtin = nullptr;
  Value self;
};

// The variables of a scope by their indices in Template::names.
struct Scope {
  Scope* outer = nullptr;
  Value* values = nullptr;
};

struct Macro {
  const Stmt* statement = nullptr;
  Scope* scope = nullptr;  // around it
};

struct Loop {
  const Stmt* statement = nullptr;
  Scope* scope = nullptr;         // around the loop
  Scope* filter_scope = nullptr;  // null without a filter
  Sequence items = {};
  size_t position = 0;  // in `items`
  Value current = {}, previous = {}, following = {}, last_changed = {};
  int64_t index0 = -1;
  int64_t length = -1;  // unknown
  int64_t depth0 = 0;
};

// Return `format % arguments`, and format.format(*args, **kwargs).
Value format_percent(Arena& arena, const Value& format, const Value& arguments);
Value format_braces(Arena& arena, const Value& format, const CallArguments& arguments);

// Renders one template once. After an error it is not used again.
class Evaluator {
 public:
  struct Context {
    std::vector<std::pair<std::string_view, Value>> variables;
    std::optional<std::tm> now;
  };

  Evaluator(const Template& source, Arena& arena, const Context& context);

  void render(TextBuilder& out);

  Arena& arena() { return arena_; }
  const Context& context() const { return context_; }
  // The offset of what is being evaluated.
  uint32_t offset() const { return offset_; }

  Value call(const Value& callee, const CallArguments& arguments);
  Value run_builtin(const Builtin& builtin, const Value& self, const CallArguments& arguments);
  // Return object.name and object[key] by Jinja's rules.
  Value get_attribute(const Value& object, const Value& key, const Methods& methods);
  Value get_item(const Value& object, const Value& key);

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  void enter_level();
  void execute(const Body& body);
  void execute(const Stmt& statement);
  void print(const Expr& expr);
  void execute_if(const Stmt& statement);
  void execute_generation(const Stmt& statement);
  void execute_inner(const Stmt& statement);
  void run_loop(const Stmt& statement, const Value& items, Scope* around, int64_t depth0);
  void execute_call_block(const Stmt& statement);
  bool next_item(Loop& loop, Value& item);
  Value loop_attribute(Loop& loop, std::string_view name);
  template <typename Run>
  Value render_call(const Run& run);
  Value call_loop(const Loop& loop, const CallArguments& arguments);
  Value call_macro(const Macro& macro, const CallArguments& arguments);
  void bind_macro(const Stmt& macro, const CallArguments& arguments, Value* values);
  void set_attribute(Dict& attributes, const Value& name, const Value& value);
  Value new_macro(const Stmt& statement);
  Scope* new_scope(Scope* outer, const Unassigned& unassigned);
  void reset_scope(Scope& scope, const Unassigned& unassigned) const;
  void assign(const Expr& target, const Value& value);

  Value evaluate(const Expr& expr);
  Value evaluate_name(const Expr& expr);
  Value evaluate_deep(const Expr& expr);
  Value evaluate_operator(const Expr& expr);
  Value evaluate_call(const Expr& expr);
  Value evaluate_builtin(const Expr& expr, const Value& subject);
  Value evaluate_filters(const Expr& expr, const Value& text);
  Value evaluate_slice(const Expr& expr);
  std::vector<Value> evaluate_all(const std::vector<Expr*>& exprs);
  CallArguments evaluate_arguments(const Expr& expr);
  Value python_attribute(const Value& object, const Value& key, const Methods& methods);

  const Template& template_;
  Arena& arena_;
  const Context& context_;
  Scope* scope_ = nullptr;
  TextBuilder* out_ = nullptr;
  SourceId message_ = 0;  // at which a loop is
  Flow flow_ = Flow::kNormal;
  uint32_t offset_ = 0;
  int levels_ = 0;
  int calls_ = 0;
};

}  // namespace zeroth::data::jinja
