#include "trainer/flags/report_to.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text/printable.h"
#include "trainer/flags/flags.h"

namespace zeroth::trainer {
namespace {

// Services that transformers knows in addition to TensorBoard.
constexpr std::array<std::string_view, 14> kServices = {
    "azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub", "dvclive", "flyte",
    "kubeflow", "mlflow",  "neptune",    "swanlab",  "trackio", "wandb",   "comet"};

bool is_service(const std::string& name) {
  return std::find(kServices.begin(), kServices.end(), name) != kServices.end();
}

}  // namespace

void resolve_report_to(const std::vector<std::string>& names, const std::string& logging_dir,
                       Flags& flags, std::vector<std::string>& errors) {
  ReportTo& report = flags.report_to;
  report.directory = logging_dir;
  for (const std::string& name : names) {
    if (name == "none") continue;
    const bool service = is_service(name);
    if (!service && name != "all" && name != "tensorboard") {
      if (!name.starts_with("--")) {
        errors.push_back(
            fmt::format("--report_to {}: must be all, none, tensorboard or the name of a service",
                        shortened(name)));
      }
      continue;
    }
    report.tensorboard = true;
    if (name != "tensorboard") report.csv = true;
    if (service) report.services.push_back(name);
  }
}

}  // namespace zeroth::trainer
