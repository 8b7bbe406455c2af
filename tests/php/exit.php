<?php
// ?code=INT or ?text=STRING; shutdown functions and destructors still run.
register_shutdown_function(static function (): void {
    echo ' shutdown';
});
$object = new class () {
    public function __destruct()
    {
        echo ' destructor';
    }
};
echo 'before';
exit($_GET['text'] ?? (int) ($_GET['code'] ?? 0));
