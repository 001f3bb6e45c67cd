// The key of an entry of the token cache: a digest of all that its ids depend on.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "base/machine/ordered_tasks.h"
#include "base/sha256.h"
#include "data/samples/record_reader.h"
#include "data/samples/token_cache.h"
#include "data/tokenizer/tokenizer.h"

namespace zeroth::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int kCacheVersion = 2;

std::vector<uint32_t> crc_of_parts(const RegularFile& file, const fs::path& path, int64_t begin,
                                   int64_t end) {
  constexpr int64_t kPart = int64_t{1} << 20;
  std::vector<uint32_t> parts;
  std::string bytes;
  for (; begin < end; begin += kPart) {
    bytes.resize(static_cast<size_t>(std::min(kPart, end - begin)));
    read_exactly(file.descriptor(), bytes, begin, path);
    parts.push_back(crc32c(bytes));
  }
  return parts;
}

// Returns the size of a file and a digest of all its bytes: the SHA-256 of the CRC32C of each MiB.
std::string digest_contents(const fs::path& path, size_t num_threads) {
  constexpr int64_t kBlock = int64_t{16} << 20;
  const RegularFile file(path);
  const auto size = static_cast<int64_t>(file.size());
  Sha256 digest;
  OrderedTasks<std::vector<uint32_t>> tasks(
      size > kBlock ? num_threads : 1, [&](const std::vector<uint32_t>& parts) {
        digest.add({reinterpret_cast<const char*>(parts.data()), parts.size() * sizeof(uint32_t)});
      });
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t end = std::min(size, begin + kBlock);
    tasks.add([&, begin, end](size_t) { return crc_of_parts(file, path, begin, end); });
  }
  tasks.finish();
  return fmt::format("{}:{}", size, to_hex(digest.finish()));
}

// Returns the current date if the text of a template asks for it, as its words differ every day.
std::string date_for(const std::vector<fs::path>& files) {
  std::error_code unknown;
  for (const fs::path& path : files) {
    if (!fs::is_regular_file(path, unknown)) continue;
    if (MappedFile(path).text().find("strftime_now") == std::string_view::npos) continue;
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    return fmt::format("{}-{}-{}", local.tm_year, local.tm_mon, local.tm_mday);
  }
  return "";
}

}  // namespace

std::string token_cache_key(const DatasetOptions& options) {
  const fs::path& model = options.model_dir;
  const std::vector<fs::path> templates = {
      model / "chat_template.jinja", model / "additional_chat_templates/tool_use.jinja",
      model / "tokenizer_config.json", options.records.chat_template};
  std::vector<fs::path> files = templates;
  files.push_back(model / "tokenizer.json");
  files.push_back(model / "special_tokens_map.json");
  files.push_back(options.records.dataset_info);
  ordered_json key = {{"cache", kCacheVersion},
                      {"version", options.version},
                      {"data", digest_contents(options.path, options.num_threads)},
                      {"name", options.path.extension().string()},
                      {"vocab_size", options.vocab_size},
                      {"end_tokens", options.tokenizer->end_tokens()},
                      {"date", date_for(templates)}};
  std::error_code unknown;
  for (const fs::path& path : files) {
    key["files"].push_back(fs::is_regular_file(path, unknown) ? digest_contents(path, 1) : "");
  }
  const RecordOptions& records = options.records;
  key["records"] = {records.format,
                    records.dataset_name,
                    records.text_field,
                    records.prompt_field,
                    records.completion_field,
                    records.messages_field,
                    records.separator ? ordered_json(*records.separator) : ordered_json(),
                    records.chat_template_kwargs,
                    static_cast<int>(records.chats_train_on),
                    static_cast<int>(records.pairs_train_on),
                    static_cast<int>(options.on_bad_record)};
  const bool chunks = options.long_text == LongText::kChunk;
  key["max_samples"] = {chunks, record_limit(options).value_or(-1)};
  return to_hex(Sha256::of(to_line(key))).substr(0, 32);
}

}  // namespace zeroth::data
