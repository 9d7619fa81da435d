"""What six paper implementations share: the run folder, its report, devices, the command line."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "cli": ["MainJob", "RunOptions"],
        "command": ["run_command", "run_verb"],
        "console": ["console", "get_logger", "set_up_logging"],
        "device": ["DeviceChoice", "choose_device", "set_threads"],
        "errors": ["UserError", "bad_input"],
        "measure": ["Cost", "count_flops", "count_parameters", "peak_memory"],
        "progress": ["StageLog", "stage_trainer"],
        "report": ["render_report"],
        "results": ["Claim", "Column", "Figure", "Results", "Table", "check_metrics"],
        "run_folder": ["RunFolder"],
        "seeds": ["derive_seed", "seed_everything", "seeded"],
        "verbs": ["run_verbs"],
    },
)
