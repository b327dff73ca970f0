/** The encoder of browsers at the service of a Python test: one JSON request a line, one answer. */

import { createInterface } from "node:readline";

import { Encoder } from "../../examples/browser/encode.js";
import { drawSymbol, uniformShare } from "../../examples/browser/law.js";

const bytes = (base64) => new Uint8Array(Buffer.from(base64, "base64")).buffer;

const answers = {
  /** Symbols of given similarities and secret words; words come as in Python, kind by kind. */
  symbols({ size, subset, uniform, similarities, words }) {
    const law = { size, subset, uniform: BigInt(uniform) };
    return similarities.map((row, i) => {
      const own = BigUint64Array.from(words, (kind) => BigInt(kind[i]));
      return drawSymbol(law, Float64Array.from(row), own);
    });
  },

  /** `count` codes of one vector with WebCrypto's bits, as dpindex reads them. */
  async release({ spec, codebook, vector, count, drawn_epsilon: drawn }) {
    const encoder = await Encoder.open(spec, bytes(codebook), 64);
    encoder.law.uniform = uniformShare({ ...encoder.law, epsilon: drawn });
    const symbols = Array.from({ length: count }, () => encoder.encode(vector));
    return Buffer.from(await encoder.toBytes(symbols)).toString("base64");
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { name, ...request } = JSON.parse(line);
  console.log(JSON.stringify(await answers[name](request)));
}
