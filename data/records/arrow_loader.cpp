#include "data/records/arrow_loader.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/files/run_path.h"

namespace zeroth::data {
namespace {

#define ZEROTH_TEXT(name) #name
#define ZEROTH_NAME_TEXT(name) ZEROTH_TEXT(name)
constexpr const char* kEntry = ZEROTH_NAME_TEXT(ZEROTH_ARROW_ENTRY);

ReadTable load_reader(const std::filesystem::path& library) {
  void* const loaded = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) throw Error("cannot load Apache Arrow: {}", ::dlerror());
  void* const entry = ::dlsym(loaded, kEntry);
  if (entry == nullptr) {
    throw Error("{} is from another build than this program: build or install both again",
                library.string());
  }
  return reinterpret_cast<ReadTable>(entry);
}

}  // namespace

std::optional<std::filesystem::path> arrow_library() {
  return find_program_library("libzeroth_arrow.so");
}

void for_each_table_row(const SourceOptions& options, DataFormat format,
                        const OnRecord& on_record) {
  const auto library = arrow_library();
  if (!library) {
    throw Error("{}: {} needs Apache Arrow: tools/setup --arrow, then build again",
                options.path.string(),
                format == DataFormat::kParquet ? "Parquet" : "an Arrow table");
  }
  static const ReadTable read = load_reader(*library);
  read(options, format, on_record);
}

}  // namespace zeroth::data
