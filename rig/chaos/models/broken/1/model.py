class TritonPythonModel:
    def initialize(self, args):
        raise RuntimeError("this model always fails to load")
