// Keeps the tables that are marked data-live current. After each event of the
// stream it loads the page again and takes the changed rows from it, so that
// there is one place that writes a row: the template. Without scripts the page
// shows what was there when it was loaded.
const pause = 100; // ms between two loads, however many events arrive

let loading = false;
let again = false;

async function refresh() {
  again = true;
  if (loading) return;
  loading = true;
  while (again) {
    again = false;
    try {
      const answer = await fetch(location.pathname, { headers: { Accept: "text/html" } });
      if (answer.ok) show(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      // The server is gone. The stream connects again, and begins with ready.
    }
    await new Promise((done) => setTimeout(done, pause));
  }
  loading = false;
}

function show(page) {
  for (const body of document.querySelectorAll("[data-live]")) {
    const next = page.getElementById(body.id);
    if (next) update(body, next);
  }
  ages();
}

// update makes the rows of body those of next. A row is known by its data-key,
// and stays where it is while somebody writes in it.
function update(body, next) {
  const rows = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const wanted = new Set([...next.rows].map((row) => row.dataset.key));
  for (const [key, row] of rows) if (!wanted.has(key)) row.remove();
  let at = body.firstElementChild;
  for (const fresh of [...next.rows]) {
    const row = rows.get(fresh.dataset.key);
    if (!row) {
      body.insertBefore(fresh, at);
      continue;
    }
    if (row === at) at = at.nextElementSibling;
    if (fresh.dataset.state !== row.dataset.state && !row.contains(document.activeElement)) row.replaceWith(fresh);
  }
}

// ages writes how long ago the instants of the page are.
function ages() {
  for (const time of document.querySelectorAll("time[data-age]")) {
    const seconds = Math.max(0, Math.round((Date.now() - Date.parse(time.dateTime)) / 1000));
    time.textContent = seconds < 120 ? `${seconds} s` : `${Math.floor(seconds / 60)} min`;
  }
}

// listen opens the stream. While it is lost, the page says so: the browser connects
// again, and this script does if the server refuses, as one that is starting does.
function listen() {
  const lost = document.getElementById("lost");
  const stream = new EventSource("/live");
  for (const event of ["order", "product", "locks", "gap", "ready"]) stream.addEventListener(event, refresh);
  stream.addEventListener("open", () => { lost.hidden = true; });
  stream.addEventListener("error", () => {
    if (!leaving) lost.hidden = false;
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  });
}

let leaving = false; // the browser ends the stream when it leaves the page
addEventListener("pagehide", () => { leaving = true; });
addEventListener("pageshow", () => { leaving = false; });
listen();
setInterval(ages, 1000);
ages();
