// Sends a form once: the second click of a double click, or of an impatient visitor with a
// slow network, would buy a second piece. The page that answers puts the focus on the first
// wrong field.
const sent = new Set();

addEventListener("submit", (event) => {
  if (event.defaultPrevented) return; // live.js has sent it
  if (sent.has(event.target)) event.preventDefault();
  sent.add(event.target);
});
addEventListener("pageshow", () => sent.clear()); // the visitor came back
window.navigation?.addEventListener("navigateerror", () => sent.clear()); // or has stopped the browser

document.querySelector("[aria-invalid]")?.focus();
