// Sorts a table by the column whose heading is chosen. The page is complete without scripts.
for (const head of document.querySelectorAll("table.sortable thead th")) {
  head.dataset.order = "";
  head.addEventListener("click", () => {
    const table = head.closest("table");
    const column = [...head.parentNode.children].indexOf(head);
    const up = head.dataset.order !== "up";
    for (const other of head.parentNode.children) other.dataset.order = "";
    head.dataset.order = up ? "up" : "down";
    const key = (row) => row.children[column].textContent.trim();
    const numeric = head.classList.contains("n");
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = numeric ? Number(x) - Number(y) : x.localeCompare(y);
      return up ? order : -order;
    });
    table.tBodies[0].append(...rows);
  });
}
