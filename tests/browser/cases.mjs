/** Agreement with Python on cases that tests/browser/browser_cases.py made; for Node and for browsers. */

import { Codebook } from "../../examples/browser/codebook.js";
import { Encoder } from "../../examples/browser/encode.js";
import { drawSymbol, uniformShare } from "../../examples/browser/law.js";
import { InputError, readSpec } from "../../examples/browser/spec.js";

function decoded(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)).buffer;
}

/** Sentences about every case in which this code and Python differ. */
export async function disagreements({ laws, encodings, refused }) {
  const found = [];
  for (const { uniform, ...terms } of laws) {
    if (uniformShare(terms) !== BigInt(uniform)) found.push(`the law of ${JSON.stringify(terms)}`);
  }
  for (const encoding of encodings) found.push(...(await wrongSymbols(encoding)));
  for (const { why, text, max_epsilon: maxEpsilon, codebook } of refused) {
    const opened = Encoder.open(text, decoded(codebook), maxEpsilon);
    const error = await opened.then(() => null, (reason) => reason);
    if (!(error instanceof InputError)) found.push(`not refused although ${why}`);
  }
  return found;
}

async function wrongSymbols({ spec: text, vectors, words, symbols, ...published }) {
  const spec = readSpec(text, 64);
  const codebook = await Codebook.open(spec, decoded(published.codebook));
  const sums = new Float64Array(decoded(published.similarity_sums));
  const law = { ...spec, uniform: uniformShare(spec) };
  const rows = new Float64Array(decoded(vectors));
  const secrets = new BigUint64Array(decoded(words));
  const expected = new Uint16Array(decoded(symbols));
  const wrong = [];
  expected.forEach((symbol, i) => {
    const similarities = codebook.similarities(rows.subarray(i * spec.dim, (i + 1) * spec.dim));
    const drawn = drawSymbol(law, similarities, secrets.subarray(3 * i, 3 * i + 3));
    if (drawn !== symbol) wrong.push(`vector ${i} became ${drawn}, not ${symbol}`);
    const sum = similarities.reduce((total, value, j) => total + value * (j + 1), 0);
    if (sum !== sums[i]) wrong.push(`vector ${i} has other similarities`);
  });
  return wrong;
}
