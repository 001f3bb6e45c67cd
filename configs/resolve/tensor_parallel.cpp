// Resolution of the tensor-parallel size.
#include <algorithm>

#include "configs/resolve/context.h"
#include "configs/schema/key_value.h"

namespace zeroth::configs {
namespace {

constexpr char kSize[] = "tensor_parallel.autotp_size";

// Suppresses errors about values in the disabled section. Unknown names remain errors.
void ignore_disabled_keys(Context& context) {
  for (const FileKey& given : context.keys.given) {
    if (given.key == nullptr || given.key->state != KeyState::kRefused) continue;
    if (given.key->path.starts_with("tensor_parallel."))
      context.suppressed.push_back(given.path + ":");
  }
}

// Returns a key without effect if the file gives it a value of its type, otherwise null.
const FileKey* find_file_key(const Context& context, const std::string& path) {
  const auto& all = context.keys.given;
  const auto found = std::find_if(all.begin(), all.end(), [&](const FileKey& given) {
    return given.key != nullptr && given.key->path == path;
  });
  if (found == all.end() || context.keys.is_bad(path)) return nullptr;
  return found->value.is_null() || found->value == "auto" ? nullptr : &*found;
}

void check_inner_size(Context& context, int64_t size) {
  const FileKey* const given = find_file_key(context, "tensor_parallel.tp.tp_size");
  if (given == nullptr || context.keys.is_bad(kSize)) return;
  const auto inner = typed_value(given->value, *given->key)->get<int64_t>();
  if (inner == 1 || inner == size) return;
  const auto outer = context.keys.get<int64_t>(kSize), flag = context.flags.tensor_parallel;
  if (!outer && !flag) {
    return context.add_error("{}: {} alone has no effect: write {} {}", given->path, inner, kSize,
                             inner);
  }
  context.add_error("{}: {}, but {} {}: make them equal, or leave it out", given->path, inner,
                    context.key_or_flag(kSize), outer.value_or(flag.value_or(0)));
}

void check_dtype(Context& context, Precision precision) {
  const FileKey* const given = find_file_key(context, "tensor_parallel.dtype");
  const bool may_change = !context.facts_known && precision == Precision::kFp32;  // --bf16 may come
  if (given == nullptr || may_change) return;
  const auto dtype = given->value.get<std::string>();
  if (parse_enum<Precision>(dtype) == precision) return;
  context.add_error("{}: {}, but the run computes in {}: leave it out or make them equal",
                    given->path, dtype, to_string(precision));
}

}  // namespace

void fill_tensor_parallel(Context& context, Config& config) {
  int64_t& size = config.tensor_parallel.size;
  std::optional<int64_t> flag = context.flags.tensor_parallel;
  // 0 and 1 both mean off.
  const auto is_off = [](const std::optional<int64_t>& value) { return value && *value <= 1; };
  if (is_off(flag) && is_off(context.keys.get<int64_t>(kSize))) flag.reset();
  size = std::max<int64_t>(1, context.resolve_value(kSize, flag).value_or(1));
  if (size == 1) ignore_disabled_keys(context);
}

void check_tensor_parallel(Context& context, const Config& config) {
  const int64_t size = config.tensor_parallel.size;
  check_inner_size(context, size);
  if (size > 1) check_dtype(context, config.precision);
}

}  // namespace zeroth::configs
