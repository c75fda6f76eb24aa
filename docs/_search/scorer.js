/* Ranks the results of a search: guides before the reference, and first the guide that says most
 * about the words. `wordsOfGuides` is made by conf.py: each guide's words, and how often it has them. */
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,

  score: ([page, title, , , score, , kind]) => {
    const asked = new URLSearchParams(window.location.search).get("q") || "";
    const query = asked.trim().toLowerCase().replace(/^`|\(\)|`$/g, "");
    if (kind === "object") {
      const name = title.toLowerCase();
      const isThat = name === query || name.endsWith(`.${query}`);
      if (!isThat) return score;
      return query.includes(".") ? 200 : 38; // a whole name, or a word that guides may explain
    }
    const counts = wordsOfGuides[page];
    if (!counts) return score / 4;
    // Pages about everything come after those about one thing.
    const rank = /^(tutorial\/|cookbook|faq|glossary)/.test(page) ? 5 : 20;
    const stemmer = new Stemmer();
    const stems = (text) => splitQuery(text.toLowerCase()).map((word) => stemmer.stemWord(word));
    const [words, titled] = [stems(query), stems(title)];
    const points = words.map(
      (word) =>
        6 * Math.log2(1 + (Object.hasOwn(counts, word) ? counts[word] : 0)) +
        (titled.includes(word) ? 30 : 0),
    );
    const said = points.reduce((a, b) => a + b, 0) / Math.max(1, words.length);
    // Of two sections of one title, the one in the page that says more.
    return kind === "text" ? rank + said : rank + 3.3 * score + said / 10;
  },
};
