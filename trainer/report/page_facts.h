// What the page of a run says beside its curves.
#pragma once

#include "monitor/run_page.h"
#include "trainer/report/environment.h"
#include "trainer/report/metrics.h"
#include "trainer/report/summary.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

monitor::PageFacts page_facts(const RunPlan& plan, const SummaryLines& summary,
                              TitledLines environment);

monitor::PageStep page_step(const StepRow& row, const device::MemoryUse& memory);

}  // namespace zeroth::trainer
