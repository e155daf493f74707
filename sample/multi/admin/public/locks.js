// Keeps the table of locks current. Without scripts the page shows what was
// held when it was loaded.
const table = document.getElementById("locks");
const release = document.getElementById("release");

function cell(name, text, kind) {
  const td = document.createElement(name);
  td.textContent = text;
  if (kind) td.className = kind;
  return td;
}

function line(lock) {
  const tr = document.createElement("tr");
  tr.dataset.key = lock.key;
  const key = cell("th", lock.key);
  key.scope = "row";
  const form = document.createElement("td");
  form.append(release.content.cloneNode(true));
  form.querySelector("[name=key]").value = lock.key;
  tr.append(key, cell("td", lock.holders.join(", ")), cell("td", lock.waiting, "number"), form);
  return tr;
}

// A row in which somebody is writing a reason stays as long as its lock does.
function show(locks) {
  const writing = document.activeElement?.closest("#locks tr");
  const rows = locks.map((lock) => (writing?.dataset.key === lock.key ? writing : line(lock)));
  if (rows.length === 0) {
    const none = document.createElement("tr");
    const td = cell("td", "Nobody holds one.");
    td.colSpan = 4;
    none.append(td);
    rows.push(none);
  }
  table.replaceChildren(...rows);
}

new EventSource("/locks/live").addEventListener("locks", (event) => show(JSON.parse(event.data)));
