/** The page: what is typed becomes a vector, and the codes are searched, all in this browser. */

import { Encoder } from "./encode.js";
import { CodeSearch } from "./search.js";

const CANDIDATES = 200;
const SHOWN = 8;
const MAX_EPSILON = 6;
const FILES = {
  "spec.json": "text", "codebook.f32": "arrayBuffer", "codes.u16": "arrayBuffer",
  "sentences.json": "json", "words.json": "json", "words.i8": "arrayBuffer",
};

const byId = (id) => document.getElementById(id);

async function loaded([name, kind]) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name} cannot be loaded: ${response.status}.`);
  return response[kind]();
}

/** The vector of a text: the sum of those of its words, without words that are not in the list. */
function vectorOf(text, { rows, numbers, dim }) {
  const sum = new Float64Array(dim);
  for (const word of new Set(text.toLowerCase().match(/[a-z0-9]+/g))) {
    const start = dim * rows.get(word);
    for (let i = 0; i < dim && start >= 0; i += 1) sum[i] += numbers[start + i];
  }
  return sum;
}

function cosine(query, vector) {
  const inner = query.reduce((sum, value, i) => sum + value * vector[i], 0);
  return inner / (Math.hypot(...vector) || 1); // times the norm of the query
}

/** From here on the browser itself refuses every request of this page. */
function disconnect() {
  const policy = document.createElement("meta");
  policy.httpEquiv = "Content-Security-Policy";
  policy.content = "default-src 'none'; style-src 'unsafe-inline'";
  document.head.append(policy);
}

async function start() {
  const files = await Promise.all(Object.entries(FILES).map(loaded));
  disconnect();
  const [spec, codewords, codes, sentences, list, bytes] = files;
  const encoder = await Encoder.open(spec, codewords, MAX_EPSILON);
  const search = new CodeSearch(encoder.codebook, codes);
  const rows = new Map(list.map((word, row) => [word, row]));
  const words = { rows, numbers: new Int8Array(bytes), dim: encoder.codebook.dim };
  byId("query").disabled = false;
  byId("query").addEventListener("input", () => show(search, words, sentences));
  byId("examples").addEventListener("click", ({ target }) => {
    if (target.tagName !== "BUTTON") return;
    byId("query").value = target.textContent;
    show(search, words, sentences);
  });
  byId("encode").addEventListener("click", () => draw(encoder, words));
  byId("status").textContent = `${search.count} codes are here: ${codes.byteLength} bytes.`;
}

async function show(search, words, sentences) {
  const query = vectorOf(byId("query").value, words);
  const known = query.some((value) => value !== 0);
  byId("encode").disabled = !known;
  byId("code").textContent = "";
  const began = performance.now();
  const found = search.candidates(query, CANDIDATES);
  const took = (performance.now() - began).toFixed(1);
  const score = (row) => cosine(query, vectorOf(sentences[row], words));
  const rerank = (rows) => Array.from(rows, score);
  const hits = await search.search(query, { count: SHOWN, candidates: CANDIDATES, rerank });
  const lines = hits.map(({ row }) => {
    const line = document.createElement("li");
    line.textContent = sentences[row];
    return line;
  });
  byId("hits").replaceChildren(...(known ? lines : []));
  const searched = `${search.count} codes searched in ${took} ms, ${found.length} candidates`;
  const answer = `${searched} put in order. No request was made.`;
  byId("status").textContent = known ? answer : "Type a question.";
}

function draw(encoder, words) {
  const symbol = encoder.encode(vectorOf(byId("query").value, words));
  const { size, subset, uniform } = encoder.law;
  const percent = Math.round(100 * (1 - Number(uniform) / 2 ** 64));
  byId("code").textContent = `Code ${symbol}, one of ${size}: in ${percent} % of draws one of the `
    + `${subset} codewords nearest to your sentence, else any of all.`;
}

start().catch((error) => { byId("status").textContent = error.message; });
