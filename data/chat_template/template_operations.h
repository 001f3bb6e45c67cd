// Operations of Python on the values of a chat template. All of them throw a TemplateFailure where
// Python or Jinja raises an exception.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "data/chat_template/template_syntax.h"
#include "data/chat_template/template_text.h"

namespace zeroth::data::jinja {

// Returns Python's name of the type.
std::string_view type_name(const Value& value);
Value new_undefined(Arena& arena, std::string_view message);
[[noreturn]] void throw_undefined(const Value& value);
Value new_sequence(Arena& arena, Kind kind, const std::vector<Value>& items,
                   std::string_view printed = {});
Value new_list(Arena& arena, const std::vector<Value>& items);
Value new_tuple(Arena& arena, const std::vector<Value>& items);
Value new_generator(Arena& arena, const std::vector<Value>& items);
// Returns a dict of the pairs; the last value of an equal key wins.
Value new_dict(Arena& arena, const std::vector<Pair>& pairs);
// Returns a dict's items as dict.items() does.
Value dict_items(Arena& arena, const Dict& dict);
// Returns the value of a key, or null.
const Value* find_key(Arena& arena, const Dict& dict, const Value& key);
void require_hashable(const Value& value);

// Returns what a loop over the value visits.
std::vector<Value> collect(Arena& arena, const Value& value);
// Returns the number of items; nullopt for what has no length.
std::optional<int64_t> length_of(const Value& value);
bool truth(const Value& value);
bool equal(Arena& arena, const Value& left, const Value& right, int depth = 0);
bool less(Arena& arena, const Value& left, const Value& right, int depth = 0);
bool compare(Arena& arena, Operator op, const Value& left, const Value& right);
Value binary(Arena& arena, Operator op, const Value& left, const Value& right);
Value negate(const Value& value);
int64_t to_index(const Value& value);                 // of an int or a bool
std::string_view to_text(const Value& value);         // of a string
std::optional<double> as_double(const Value& value);  // of any number but a big one

}  // namespace zeroth::data::jinja
