#include "data/records/record_source.h"

#include <span>
#include <string>

#include "base/error.h"
#include "base/text/units.h"
#include "data/records/arrow_loader.h"
#include "data/records/data_files.h"

namespace zeroth::data {
namespace {

// Returns the text of a file that has to be in memory as a whole.
std::string unpack_all(ByteSource& source) {
  std::string text;
  for (std::string_view piece = source.next(); !piece.empty(); piece = source.next()) {
    text += piece;
    if (text.size() > kMaxPackedJsonBytes) {
      throw Error(
          "{} has more than {} when it is unpacked: unpack it, or write one object per line",
          source.path(), format_bytes(static_cast<int64_t>(kMaxPackedJsonBytes)));
    }
  }
  return text;
}

void for_each_json_value(const SourceOptions& options, Compression compression,
                         const OnRecord& on_record) {
  const std::string path = options.path.string();
  if (compression != Compression::kNone) {
    const auto source = open_byte_source(options.path, compression);
    const std::string text = unpack_all(*source);
    for_each_element(text, path, [&](const RawRecord& record) {
      if (options.on_read) options.on_read(source->size(), source->size());
      return on_record(record);
    });
    return;
  }
  const MappedFile file(options.path);
  const auto drop = [&](std::string_view passed) {
    file.drop_pages(std::as_bytes(std::span(passed)));
  };
  const auto bytes = static_cast<int64_t>(file.size());
  for_each_element(
      file.text(), path,
      [&](const RawRecord& record) {
        if (options.on_read) options.on_read(record.text.data() - file.text().data(), bytes);
        return on_record(record);
      },
      drop);
}

}  // namespace

int64_t for_each_record(const SourceOptions& options, const OnRecord& on_record) {
  const std::string path = options.path.string();
  if (const std::string why = mislabel_error(options.path); !why.empty()) {
    throw Error("{}{}", path, why);
  }
  const DataFileType type = data_file_type(options.path);
  ZEROTH_CHECK(type.has_records(), "{} has no records", path);
  if (type.format == DataFormat::kParquet || type.format == DataFormat::kArrow) {
    for_each_table_row(options, type.format, on_record);
    return 0;
  }
  if (type.format == DataFormat::kJson) {
    for_each_json_value(options, type.compression, on_record);
    return 0;
  }
  const auto source = open_byte_source(options.path, type.compression);
  const auto reporting = [&](const RawRecord& record) {
    if (options.on_read) options.on_read(source->position(), source->size());
    return on_record(record);
  };
  return type.format == DataFormat::kCsv ? for_each_csv_row(*source, reporting)
                                         : for_each_line(*source, reporting);
}

void for_each_block(const std::filesystem::path& path,
                    const std::function<bool(std::string_view)>& on_text) {
  if (const std::string why = mislabel_error(path); !why.empty()) {
    throw Error("{}{}", path.string(), why);
  }
  const auto source = open_byte_source(path, data_file_type(path).compression);
  for (std::string_view piece = source->next(); !piece.empty(); piece = source->next()) {
    if (!on_text(piece)) return;
  }
}

}  // namespace zeroth::data
