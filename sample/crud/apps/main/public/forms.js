// Sends a form once: the second click of a double click, or of an impatient visitor with a
// slow network, would buy a second piece.
const sent = new Set();

addEventListener("submit", (event) => {
  if (event.defaultPrevented) return; // live.js has sent it
  if (sent.has(event.target)) event.preventDefault();
  sent.add(event.target);
});
addEventListener("pageshow", () => sent.clear()); // the visitor came back
window.navigation?.addEventListener("navigateerror", () => sent.clear()); // or has stopped the browser
