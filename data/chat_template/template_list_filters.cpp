// Filters of lists. They evaluate at once what Jinja evaluates when it is asked for.
#include <algorithm>

#include "base/text/printable.h"
#include "data/chat_template/template_evaluator.h"

namespace zeroth::data::jinja {
namespace {

using Items = std::vector<Value>;

// Returns Jinja's attribute getter applied to a value: "a.b.0" by dots, whole numbers as indices.
Value get_path(const Call& call, Value item, const Value& path, const Value& fallback = {}) {
  if (path.is_missing() || path.is(Kind::kNone)) return item;
  const Items parts = path.is_string() ? split(call.arena, path, ".") : Items{path};
  for (Value part : parts) {
    const std::string_view text = part.is_string() ? part.text() : "";
    if (!text.empty() && text.find_first_not_of("0123456789") == text.npos) {
      part = parse_integer(call.arena, text);
    }
    fail_if(item.is(Kind::kNamespace) || item.is(Kind::kLoop),
            "a filter by an attribute of '{}' is not supported", type_name(item));
    item = call.evaluator.get_item(item, part);
    const bool has_fallback = !fallback.is_missing() && !fallback.is(Kind::kNone);
    if (has_fallback && item.is(Kind::kUndefined)) item = fallback;
  }
  return item;
}

// Returns the key by which an item is sorted: `attribute` and `case_sensitive` are arguments.
Value sort_key(const Call& call, const Value& item, const Value& attribute, bool case_sensitive) {
  const Value key = get_path(call, item, attribute);
  if (case_sensitive || !key.is_string()) return key;
  return convert_case(call.arena, key, LetterCase::kLower);
}

// Sorts by keys as Python does: stable, also in reverse.
Items sorted(const Call& call, const Items& items, const Items& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    call.arena.charge(1);
    return reverse ? less(call.arena, keys[b], keys[a]) : less(call.arena, keys[a], keys[b]);
  });
  Items result;
  for (const size_t i : order) result.push_back(items[i]);
  return result;
}

Value sort(const Call& call) {
  const Items items = collect(call.arena, call.self);
  const Items attributes = call[2].is_string() ? split(call.arena, call[2], ",") : Items{call[2]};
  Items keys;
  for (const Value& item : items) {
    Items parts;
    for (const Value& attribute : attributes) {
      parts.push_back(sort_key(call, item, attribute, call.flag(1)));
    }
    keys.push_back(new_list(call.arena, parts));
  }
  return new_list(call.arena, sorted(call, items, keys, call.integer(0, 0) != 0));
}

// Returns the pairs of a dict as tuples.
Items pairs_of(const Call& call) {
  if (call.self.is(Kind::kUndefined)) throw_undefined(call.self);
  if (!call.self.is(Kind::kDict)) throw TemplateFailure("can only get item pairs from a mapping");
  return collect(call.arena, dict_items(call.arena, *call.self.dict));
}

Value dictsort(const Call& call) {
  const std::string_view by = call.has(1) ? call.string(1) : "key";
  fail_if(by != "key" && by != "value", "you can only sort by either \"key\" or \"value\"");
  const Items items = pairs_of(call);
  Items keys;
  for (const Value& item : items) {
    const Value& part = item.sequence->items[by == "key" ? 0 : 1];
    keys.push_back(sort_key(call, part, {}, call.flag(0)));
  }
  return new_list(call.arena, sorted(call, items, keys, call.integer(2, 0) != 0));
}

Value groupby(const Call& call) {
  const auto key = [&](const Value& item) { return get_path(call, item, call[0], call[1]); };
  const auto fold = [&](const Value& value) { return sort_key(call, value, {}, call.flag(2)); };
  const Items items = collect(call.arena, call.self);
  Items keys;
  for (const Value& item : items) keys.push_back(fold(key(item)));
  const Items ordered = sorted(call, items, keys, false);
  Items groups;
  for (size_t begin = 0; begin < ordered.size();) {
    const Value first = key(ordered[begin]);
    Items group = {ordered[begin++]};
    while (begin < ordered.size() && equal(call.arena, fold(key(ordered[begin])), fold(first))) {
      group.push_back(ordered[begin++]);
    }
    groups.push_back(new_tuple(call.arena, {first, new_list(call.arena, group)}));
  }
  return new_list(call.arena, groups);
}

Value join(const Call& call) {
  const Value separator =
      call.has(0) ? to_string_value(call.arena, call[0]) : view_string(call.arena, "");
  TextBuilder out(call.arena);
  bool first = true;
  for (const Value& item : collect(call.arena, call.self)) {
    if (!first) out.append(separator);
    first = false;
    append_str(out, get_path(call, item, call[1]));
  }
  return out.build();
}

Value empty_sequence(const Call& call) {
  return new_undefined(call.arena, "the sequence of 'first', 'last', 'min' or 'max' is empty");
}

Value first(const Call& call) {
  const Items items = collect(call.arena, call.self);
  return items.empty() ? empty_sequence(call) : items.front();
}

Value last(const Call& call) {
  fail_if(call.self.is(Kind::kGenerator), "'generator' object is not reversible");
  const Items items = collect(call.arena, call.self);
  return items.empty() ? empty_sequence(call) : items.back();
}

template <bool kMax>
Value extreme(const Call& call) {
  const Items items = collect(call.arena, call.self);
  if (items.empty()) return empty_sequence(call);
  const auto key = [&](const Value& item) { return sort_key(call, item, call[1], call.flag(0)); };
  Value best = items[0];
  for (const Value& item : items) {
    const bool better =
        kMax ? less(call.arena, key(best), key(item)) : less(call.arena, key(item), key(best));
    if (better) best = item;
  }
  return best;
}

Value reverse(const Call& call) {
  Items items = collect(call.arena, call.self);
  std::reverse(items.begin(), items.end());
  if (call.self.is_string()) {
    TextBuilder out(call.arena);
    for (const Value& character : items) out.append(character);
    return out.build(call.self.safe);
  }
  return call.self.is(Kind::kGenerator) ? new_list(call.arena, items)
                                        : new_generator(call.arena, items);
}

Value list(const Call& call) {
  return new_list(call.arena, collect(call.arena, call.self));
}

Value items(const Call& call) {
  const bool undefined = call.self.is(Kind::kUndefined);
  return new_generator(call.arena, undefined ? Items() : pairs_of(call));
}

Value unique(const Call& call) {
  Items keys, chosen;
  for (const Value& item : collect(call.arena, call.self)) {
    const Value key = sort_key(call, item, call[1], call.flag(0));
    require_hashable(key);
    const auto same = [&](const Value& other) { return equal(call.arena, key, other); };
    if (std::any_of(keys.begin(), keys.end(), same)) continue;
    keys.push_back(key);
    chosen.push_back(item);
  }
  return new_generator(call.arena, chosen);
}

Value sum(const Call& call) {
  Value total = call.has(1) ? call[1] : Value::of_int(0);
  if (total.is_string()) throw TemplateFailure("'sum' cannot add strings");
  for (const Value& item : collect(call.arena, call.self)) {
    total = binary(call.arena, Operator::kAdd, total, get_path(call, item, call[0]));
  }
  return total;
}

Value batch(const Call& call) {
  const int64_t size = call.integer(0, 0);
  if (size <= 0 || call.has(1)) throw TemplateFailure("this 'batch' is not supported");
  Items batches, current;
  for (const Value& item : collect(call.arena, call.self)) {
    if (std::ssize(current) == size) {
      batches.push_back(new_list(call.arena, std::exchange(current, {})));
    }
    current.push_back(item);
  }
  if (!current.empty()) batches.push_back(new_list(call.arena, current));
  return new_generator(call.arena, batches);
}

// A filter or a test that the arguments of another filter name, and its own arguments.
struct Named {
  const Builtin* builtin = nullptr;
  CallArguments arguments;

  Named(const Call& call, size_t first, const Builtin* (*find)(std::string_view)) {
    const auto& positional = call.all.positional;
    const Value& name = positional[first];
    if (name.is_string()) builtin = find(name.text());
    fail_if(builtin == nullptr, "there is no filter or test named '{}'",
            name.is_string() ? shortened(name.text()) : "?");
    arguments.positional.assign(positional.begin() + static_cast<ptrdiff_t>(first) + 1,
                                positional.end());
    arguments.named = call.all.named;
  }
};

Value map(const Call& call) {
  Items mapped;
  if (!truth(call.self)) return new_generator(call.arena, mapped);
  const Items items = collect(call.arena, call.self);
  if (!call.all.positional.empty()) {
    const Named filter(call, 0, find_filter);
    for (const Value& item : items) {
      mapped.push_back(call.evaluator.run_builtin(*filter.builtin, item, filter.arguments));
    }
    return new_generator(call.arena, mapped);
  }
  Value attribute, fallback;
  for (const auto& [name, value] : call.all.named) {
    fail_if(name != "attribute" && name != "default", "'map' takes no argument '{}'",
            shortened(name));
    (name == "attribute" ? attribute : fallback) = value;
  }
  if (attribute.is_missing()) throw TemplateFailure("'map' requires a filter argument");
  for (const Value& item : items) mapped.push_back(get_path(call, item, attribute, fallback));
  return new_generator(call.arena, mapped);
}

template <bool kNegated, bool kAttribute>
Value select(const Call& call) {
  Items chosen;
  if (!truth(call.self)) return new_generator(call.arena, chosen);
  const size_t first = kAttribute ? 1 : 0;
  fail_if(call.all.positional.size() < first, "missing parameter for attribute name");
  std::optional<Named> test;
  if (call.all.positional.size() > first) test.emplace(call, first, find_test);
  for (const Value& item : collect(call.arena, call.self)) {
    Value result = kAttribute ? get_path(call, item, call.all.positional[0]) : item;
    if (test) result = call.evaluator.run_builtin(*test->builtin, result, test->arguments);
    if (truth(result) != kNegated) chosen.push_back(item);
  }
  return new_generator(call.arena, chosen);
}

}  // namespace

const Builtins& list_filters() {
  static const Builtins kFilters = {
      {"batch", {"linecount", "fill_with"}, 1, batch},
      {"dictsort", {"case_sensitive", "by", "reverse"}, 0, dictsort},
      {"first", {}, 0, first},
      {"groupby", {"attribute", "default", "case_sensitive"}, 1, groupby},
      {"items", {}, 0, items},
      {"join", {"d", "attribute"}, 0, join},
      {"last", {}, 0, last},
      {"list", {}, 0, list},
      {"map", {"*"}, 0, map},
      {"max", {"case_sensitive", "attribute"}, 0, extreme<true>},
      {"min", {"case_sensitive", "attribute"}, 0, extreme<false>},
      {"reject", {"*"}, 0, select<true, false>},
      {"rejectattr", {"*"}, 0, select<true, true>},
      {"reverse", {}, 0, reverse},
      {"select", {"*"}, 0, select<false, false>},
      {"selectattr", {"*"}, 0, select<false, true>},
      {"sort", {"reverse", "case_sensitive", "attribute"}, 0, sort},
      {"sum", {"attribute", "start"}, 0, sum},
      {"unique", {"case_sensitive", "attribute"}, 0, unique},
  };
  return kFilters;
}

}  // namespace zeroth::data::jinja
