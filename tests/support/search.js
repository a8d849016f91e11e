// Asks the search of a built site as its pages do, by the site's own script: prints the pages found for each word, the
// best first.    node search.js SITE WORD...
const fs = require("fs"), path = require("path"), vm = require("vm");
const [site, ...words] = process.argv.slice(2);
const folder = path.join(site, "assets", "javascripts", "workers");
const load = (name) => vm.runInThisContext(fs.readFileSync(path.join(folder, name), "utf8"));
let ask, answer;
Object.assign(globalThis, {
  self: globalThis,
  importScripts: (...names) => names.forEach(load),
  addEventListener: (_, listener) => { ask = (type, data) => listener({ data: { type, data } }); },
  postMessage: (message) => { answer = message.data; },
});
load(fs.readdirSync(folder).find((name) => /^search\..*\.js$/.test(name)));
(async () => {
  const { config, docs } = JSON.parse(fs.readFileSync(path.join(site, "search", "search_index.json"), "utf8"));
  await ask(0, { config, docs, options: {} });
  const found = {};
  for (const word of words) {
    await ask(2, word);
    found[word] = answer.items.map((sections) => sections[0].location);
  }
  console.log(JSON.stringify(found));
})();
