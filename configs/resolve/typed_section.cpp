// Functions that optimizer and scheduler share: a type, and params that depend on it.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {

std::optional<size_t> parse_type(Context& context, const std::string& path, const TypeNames& known,
                                 const TypeNames& unsupported, bool any_case) {
  const std::optional<std::string> type = context.keys.get<std::string>(path);
  if (!type) {
    if (!context.keys.is_bad(path)) {
      context.add_error("{}: missing; one of {}", path, fmt::join(known, ", "));
    }
    return std::nullopt;
  }
  const auto same = [&](std::string_view name) {
    return type->size() == name.size() &&
           (any_case ? edit_distance(*type, name) == 0 : *type == name);
  };
  if (const auto found = std::find_if(known.begin(), known.end(), same); found != known.end()) {
    return static_cast<size_t>(found - known.begin());
  }
  context.suppressed.push_back(path.substr(0, path.find('.')) + ".params.");
  if (std::any_of(unsupported.begin(), unsupported.end(), same)) {
    context.add_error("{}: {} is not supported yet; one of {}", path, *type,
                      fmt::join(known, ", "));
  } else {
    const std::string_view near = nearest_name(*type, known);
    context.add_error("{}: unknown type \"{}\"; {}", path, shortened(*type),
                      near.empty() ? fmt::format("one of {}", fmt::join(known, ", "))
                                   : fmt::format("did you mean {}?", near));
  }
  return std::nullopt;
}

void check_params(Context& context, const std::string& section, std::string_view type,
                  std::string_view takes) {
  const std::string prefix = section + ".params.";
  for (const FileKey& given : context.keys.given) {
    if (given.key == nullptr) continue;
    const std::string path(given.key->path);
    if (!path.starts_with(prefix) || given.key->state == KeyState::kRefused) continue;
    if (path == "optimizer.params.max_grad_norm") continue;  // means clipping; valid with any type
    if (contains_value(takes, path.substr(prefix.size()), ' ')) continue;
    context.add_error("{}: not supported by {}; supported: {}", given.path, type,
                      fmt::join(split_values(takes, ' '), ", "));
  }
}

}  // namespace zeroth::configs
