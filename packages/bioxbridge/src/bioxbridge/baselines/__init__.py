"""What BioX-Bridge is compared with, behind the bridge's interface: new inputs to logits."""
