"""A model folder as a GGUF file, for llama.cpp and what is built on it, such as Ollama: written, then proven with llama.cpp itself."""
