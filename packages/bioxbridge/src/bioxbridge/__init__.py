"""BioX-Bridge: unsupervised knowledge transfer across biosignals by model bridging."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "adapters": ["BlockModel", "TaskModel", "check_blocks", "describe"],
        "bridge": ["PrototypeBridge", "initialise_prototypes", "prototype_bridge_parameters"],
        "bridge_variants": ["FullRankBridge", "LowRankBridge", "MLPBridge", "PerTokenBridge"],
        "bridged": ["BridgedModel"],
        "cache": ["CachedStates", "cached_states"],
        "data": ["BiosignalData", "row_loader"],
        "encoder": ["SignalEncoder"],
        "export": ["StandaloneBridge", "export_onnx", "export_program"],
        "features": ["pooled_states", "token_states"],
        "fitting": ["fit_bridge"],
        "frozen": ["FrozenFeatures", "Transfer"],
        "foundation": ["ARCHITECTURES", "hubert_ecg", "huggingface_encoder", "load_weights"],
        "lora": ["add_lora", "merge_lora"],
        "metrics": ["classification_scores", "t_interval"],
        "module": ["BridgeModule"],
        "preprocessing": ["band_pass", "notch", "resample", "z_score"],
        "quality": ["correct_drift", "estimate_drift", "fill_gaps", "window_quality"],
        "recordings": ["load_recordings"],
        "selection": [
            "Positions",
            "fixed_positions",
            "grid",
            "probe_folds",
            "probe_score",
            "random_positions",
            "select_positions",
        ],
        "similarity": ["BatchedCKA", "cka"],
        "tokens": ["SpectralTokens", "standardise_by_subject"],
        "windows": [
            "Pairs",
            "Recording",
            "cut_windows",
            "split_blocks",
            "split_subjects",
            "time_blocks",
        ],
    },
)
