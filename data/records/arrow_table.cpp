// libzeroth_arrow.so: rows of .parquet and .arrow files as JSON. The only file that includes Arrow.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/util/float16.h>
#include <arrow/visit_type_inline.h>
#include <parquet/arrow/reader.h>
#include <parquet/properties.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/json/json.h"
#include "base/text/printable.h"
#include "data/records/arrow_loader.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kBatchRows = 256;                   // of .parquet, whose pages are larger
constexpr int64_t kMaxMemory = int64_t{4} << 30;      // of Arrow, for one batch and its pages
constexpr int64_t kReadBytes = int64_t{1} << 20;      // of .parquet at once, for each column
constexpr const char* kJsonExtension = "arrow.json";  // texts that are JSON

// Returns whether values of a type are JSON, or have the same meaning as a text.
bool is_supported(const arrow::DataType& type, size_t depth) {
  if (depth > kMaxJsonDepth) return false;
  switch (type.id()) {
    case arrow::Type::DICTIONARY:
      return is_supported(*static_cast<const arrow::DictionaryType&>(type).value_type(), depth + 1);
    case arrow::Type::EXTENSION: {
      const auto& extension = static_cast<const arrow::ExtensionType&>(type);
      return extension.extension_name() == kJsonExtension &&
             is_supported(*extension.storage_type(), depth + 1);
    }
    case arrow::Type::MAP:
      if (!arrow::is_base_binary_like(static_cast<const arrow::MapType&>(type).key_type()->id())) {
        return false;  // a key of JSON is a text
      }
      [[fallthrough]];
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
    case arrow::Type::STRUCT:
      return std::all_of(type.fields().begin(), type.fields().end(), [&](const auto& field) {
        return is_supported(*field->type(), depth + 1);
      });
    case arrow::Type::NA:
    case arrow::Type::BOOL:
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW:
    case arrow::Type::DATE32:
    case arrow::Type::TIMESTAMP:
      return true;
    default:
      return arrow::is_integer(type.id()) || arrow::is_floating(type.id());
  }
}

// Returns a time as ISO 8601: "2024-05-01T12:00:00.250", with "Z" if the column has a time zone, as
// its values are UTC then.
std::string iso_time(int64_t value, const arrow::TimestampType& type) {
  constexpr int64_t kUnits[] = {1, 1'000, 1'000'000, 1'000'000'000};  // in a second
  constexpr int kDigits[] = {0, 3, 6, 9};
  const int64_t units = kUnits[type.unit()];
  const int64_t seconds = value / units - (value % units < 0 ? 1 : 0);
  const int64_t fraction = value - seconds * units;
  const std::chrono::sys_seconds time{std::chrono::seconds(seconds)};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  std::string text =
      fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", static_cast<int>(date.year()),
                  static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                  clock.hours().count(), clock.minutes().count(), clock.seconds().count());
  if (fraction != 0) text += fmt::format(".{:0{}}", fraction, kDigits[type.unit()]);
  return type.timezone().empty() ? text : text + "Z";
}

std::string iso_date(int32_t days) {
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(days))};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

// JSON has no infinity and no NaN, with which pandas marks a missing number.
ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json value_of(const arrow::Array& array, int64_t index);

// `list` has value_offset() and value_length().
template <typename List>
ordered_json list_of(const arrow::Array& array, int64_t index) {
  const auto& list = static_cast<const List&>(array);
  auto elements = ordered_json::array();
  for (int64_t i = 0; i < list.value_length(index); ++i) {
    elements.push_back(value_of(*list.values(), list.value_offset(index) + i));
  }
  return elements;
}

ordered_json object_of(const arrow::StructArray& array, int64_t index) {
  auto object = ordered_json::object();
  for (int i = 0; i < array.num_fields(); ++i) {
    object[array.struct_type()->field(i)->name()] = value_of(*array.field(i), index);
  }
  return object;
}

ordered_json object_of(const arrow::MapArray& array, int64_t index) {
  auto object = ordered_json::object();
  for (int64_t i = 0; i < array.value_length(index); ++i) {
    const int64_t at = array.value_offset(index) + i;
    object[value_of(*array.keys(), at).get<std::string>()] = value_of(*array.items(), at);
  }
  return object;
}

// A value of a type that has no other ones in it.
template <typename Type>
ordered_json scalar_of(const Type& type, const arrow::Array& array, int64_t index) {
  constexpr bool kIsText = std::is_same_v<Type, arrow::StringType> ||
                           std::is_same_v<Type, arrow::LargeStringType> ||
                           std::is_same_v<Type, arrow::StringViewType>;
  constexpr bool kIsNumber =
      arrow::is_boolean_type<Type>::value || arrow::is_integer_type<Type>::value;
  if constexpr (kIsText || kIsNumber || arrow::is_floating_type<Type>::value ||
                arrow::is_timestamp_type<Type>::value || std::is_same_v<Type, arrow::Date32Type>) {
    const auto& values = static_cast<const typename arrow::TypeTraits<Type>::ArrayType&>(array);
    const auto value = values.GetView(index);
    if constexpr (kIsText || kIsNumber) {
      return value;
    } else if constexpr (arrow::is_half_float_type<Type>::value) {
      return number(arrow::util::Float16::FromBits(value).ToFloat());
    } else if constexpr (arrow::is_floating_type<Type>::value) {
      return number(value);
    } else if constexpr (arrow::is_timestamp_type<Type>::value) {
      return iso_time(value, type);
    } else {
      return iso_date(value);
    }
  }
  return nullptr;
}

ordered_json value_of(const arrow::Array& array, int64_t index) {
  if (array.IsNull(index)) return nullptr;
  switch (array.type_id()) {
    case arrow::Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
      return value_of(*dictionary.dictionary(), dictionary.GetValueIndex(index));
    }
    case arrow::Type::EXTENSION: {
      const auto& extension = static_cast<const arrow::ExtensionArray&>(array);
      const ordered_json text = value_of(*extension.storage(), index);
      JsonSource source{.name = kJsonExtension, .duplicate_keys = DuplicateKeyPolicy::kReject};
      return parse_ordered_json(text.get_ref<const std::string&>(), source);
    }
    case arrow::Type::LIST:
      return list_of<arrow::ListArray>(array, index);
    case arrow::Type::LARGE_LIST:
      return list_of<arrow::LargeListArray>(array, index);
    case arrow::Type::FIXED_SIZE_LIST:
      return list_of<arrow::FixedSizeListArray>(array, index);
    case arrow::Type::STRUCT:
      return object_of(static_cast<const arrow::StructArray&>(array), index);
    case arrow::Type::MAP:
      return object_of(static_cast<const arrow::MapArray&>(array), index);
    default:
      return arrow::VisitType(*array.type(), [&](const auto& type) -> ordered_json {
        return scalar_of(type, array, index);
      });
  }
}

// A TableReader reads the rows of one file.
class TableReader {
 public:
  TableReader(const SourceOptions& options, DataFormat format, const OnRecord& on_record)
      : path_(options.path.string()),
        kind_(format == DataFormat::kParquet ? "Parquet" : "Arrow"),
        options_(options),
        on_record_(on_record),
        bytes_(static_cast<int64_t>(std::filesystem::file_size(options.path))) {}

  void run(DataFormat format) {
    try_arrow([&] { format == DataFormat::kParquet ? open_parquet() : open_arrow(); });
    check_columns();
    while (const auto batch = next_batch()) {
      for (int64_t i = 0; i < batch->num_rows(); ++i) {
        if (options_.on_read) options_.on_read(position(), bytes_);
        if (!emit(*batch, i)) return;
      }
    }
    if (options_.on_read) options_.on_read(bytes_, bytes_);
  }

 private:
  // Calls what may fail in Arrow's code, and turns its failures into Errors.
  template <typename Call>
  std::invoke_result_t<Call> try_arrow(const Call& call) const {
    try {
      return call();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw Error("{} cannot be read as {}: {}", path_, kind_, quotation(reason));
  }
  void check(const arrow::Status& status) const {
    if (!status.ok()) fail(status.message());
  }
  template <typename Value>
  Value value_or_fail(arrow::Result<Value> result) const {
    check(result.status());
    return std::move(result).ValueUnsafe();
  }

  void open_parquet() {
    file_ = value_or_fail(arrow::io::ReadableFile::Open(path_));
    parquet::ReaderProperties pages(&pool_);
    pages.enable_buffered_stream();
    pages.set_buffer_size(kReadBytes);
    parquet::ArrowReaderProperties batches(/*use_threads=*/false);
    batches.set_batch_size(kBatchRows);
    batches.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(file_, pages));
    check(builder.memory_pool(&pool_)->properties(batches)->Build(&parquet_));
    num_rows_ = parquet_->parquet_reader()->metadata()->num_rows();
    batches_ = value_or_fail(parquet_->GetRecordBatchReader());
    schema_ = batches_->schema();
  }

  // Hugging Face's datasets write streams, pyarrow.feather files.
  void open_arrow() {
    file_ = value_or_fail(arrow::io::ReadableFile::Open(path_));
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.memory_pool = &pool_;
    options.use_threads = false;
    const auto start = value_or_fail(file_->ReadAt(0, 6));
    check(file_->Seek(0));
    if (start->ToString() == "ARROW1") {
      random_ = value_or_fail(arrow::ipc::RecordBatchFileReader::Open(file_, options));
      schema_ = random_->schema();
    } else {
      batches_ = value_or_fail(arrow::ipc::RecordBatchStreamReader::Open(file_, options));
      schema_ = batches_->schema();
    }
  }

  void check_columns() {
    for (const auto& field : schema_->fields()) {
      if (find_invalid_utf8(field->name())) throw Error("{}: a column's name is not UTF-8", path_);
      if (!is_supported(*field->type(), 0)) {
        throw Error("{}: column '{}' has the type {}, for which JSON has no value: leave it out",
                    path_, shortened(field->name()), shortened(field->type()->ToString()));
      }
      if (!row_.emplace(field->name(), nullptr).second) {
        throw Error("{}: two columns have the name '{}'", path_, shortened(field->name()));
      }
    }
  }

  // Returns null at the end.
  std::shared_ptr<arrow::RecordBatch> next_batch() {
    return try_arrow([&]() -> std::shared_ptr<arrow::RecordBatch> {
      std::shared_ptr<arrow::RecordBatch> batch;
      if (random_ == nullptr) {
        check(batches_->ReadNext(&batch));
      } else if (next_ < random_->num_record_batches()) {
        batch = value_or_fail(random_->ReadRecordBatch(next_++));
      }
      // Offsets, indices and UTF-8: nothing below reads outside of the batch.
      if (batch != nullptr) check(batch->ValidateFull());
      return batch;
    });
  }

  bool emit(const arrow::RecordBatch& batch, int64_t index) {
    ordered_json row = row_;
    ++line_;
    int column = 0;
    try {
      for (ordered_json& value : row) value = value_of(*batch.column(column++), index);
    } catch (const Error& error) {
      throw Error("{}:{}: column '{}': {}", path_, line_, shortened(batch.column_name(column - 1)),
                  error.what());
    }
    return on_record_({.text = {}, .row = &row, .line = line_});
  }

  // Returns the bytes of the file that were read, about.
  int64_t position() const {
    const auto part_of_file = [&](int64_t done, int64_t all) {
      const double part = static_cast<double>(done) / static_cast<double>(all);
      return static_cast<int64_t>(static_cast<double>(bytes_) * std::min(part, 1.0));
    };
    if (num_rows_ > 0) return part_of_file(line_, num_rows_);
    if (random_ != nullptr) return part_of_file(next_, random_->num_record_batches());
    return file_->Tell().ValueOr(0);
  }

  std::string path_;
  std::string kind_;
  const SourceOptions& options_;
  const OnRecord& on_record_;
  int64_t bytes_;  // of the file
  arrow::CappedMemoryPool pool_{arrow::default_memory_pool(), kMaxMemory};
  std::shared_ptr<arrow::io::ReadableFile> file_;
  std::unique_ptr<parquet::arrow::FileReader> parquet_;
  std::shared_ptr<arrow::RecordBatchReader> batches_;          // of .parquet and streams
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> random_;  // of Arrow's file format
  std::shared_ptr<arrow::Schema> schema_;
  ordered_json row_ = ordered_json::object();  // a row of nulls
  int64_t num_rows_ = 0;                       // of .parquet
  int64_t line_ = 0;                           // of the last row
  int next_ = 0;                               // batch of `random_`
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void ZEROTH_ARROW_ENTRY(
    const SourceOptions& options, DataFormat format, const OnRecord& on_record) {
  TableReader(options, format, on_record).run(format);
}

}  // namespace zeroth::data
